/*
 * A program for iptables' bpf match (xt_bpf): whether a packet's two IPv4 addresses and TCP ports are those of a flow in a
 * map, as one that lets decided flows by would ask. What bench/run measures beside connection marks and tc.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

struct flow {
	__u32 from, to;
	__u16 ports[2];
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 65536);
	__type(key, struct flow);
	__type(value, __u64);
} flows SEC(".maps");

SEC("socket")
int known(struct __sk_buff *skb)
{
	struct flow flow = {};
	__u8 header[2];

	/* The match shows packets from their IP header on. */
	if (bpf_skb_load_bytes(skb, 0, header, 1) || bpf_skb_load_bytes(skb, 9, header + 1, 1) || header[0] != 0x45 || header[1] != 6)
		return 0;
	if (bpf_skb_load_bytes(skb, 12, &flow.from, 8) || bpf_skb_load_bytes(skb, 20, &flow.ports, 4))
		return 0;
	/* Which ports a client takes is not known before: all of one pair of addresses count as one flow. */
	flow.ports[0] = flow.ports[1] = 0;
	return bpf_map_lookup_elem(&flows, &flow) != 0;
}

char terms[] SEC("license") = "GPL";
