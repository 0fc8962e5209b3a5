// SPDX-License-Identifier: GPL-3.0-or-later
//
// Forwards TCP segments of flows that the guard has decided to let pass, before netfilter sees them. What it does not
// forward goes on as if it were not there; src/bypass/mod.rs says what that is, and why.
//
// Needs no header, so that `scripts/bypass-object` makes the same octets wherever clang 14 is.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#define SECTION(name) __attribute__((section(name), used))
#define INLINE static __attribute__((always_inline))
#define ARRAY_OF(name, count) int (*name)[count]

// The layout that the kernel gives to programs of the type `BPF_PROG_TYPE_SCHED_CLS` (linux/bpf.h).
struct __sk_buff {
	u32 len, pkt_type, mark, queue_mapping, protocol, vlan_present, vlan_tci, vlan_proto, priority;
	u32 ingress_ifindex, ifindex, tc_index, cb[5], hash, tc_classid, data, data_end, napi_id;
	u32 family, remote_ip4, local_ip4, remote_ip6[4], local_ip6[4], remote_port, local_port;
	u32 data_meta;
	u64 flow_keys, tstamp;
	u32 wire_len, gso_segs;
	u64 sk;
	u32 gso_size;
};

struct fib {
	u8 family, l4_protocol;
	u16 sport, dport, tot_len;
	u32 ifindex;
	union { u8 tos; u32 flowinfo; };
	u32 src[4];
	u32 dst[4];
	u16 vlan_proto, vlan_tci;
	u8 smac[6], dmac[6];
};

struct neighbour {
	u32 family;
	u32 address[4];
};

enum map_type { HASH_LRU = 9, ARRAY_PER_CPU = 6 };

static void *(*const lookup)(void *map, const void *key) = (void *)1;
static long (*const delete)(void *map, const void *key) = (void *)3;
static u64 (*const now)(void) = (void *)5;
static long (*const pull)(struct __sk_buff *, u32 octets) = (void *)39;
static long (*const find_way)(void *context, struct fib *, int size, u32 flags) = (void *)69;
static long (*const redirect)(u32 interface, struct neighbour *, int size, u64 flags) = (void *)152;

#define BE16(number) ((u16)__builtin_bswap16(number))

enum { PASS_ON = -1 };
enum { FOR_US = 0 };
enum { ETHERNET = 14, IPV4 = 20, IPV6 = 40, TCP = 20 };
enum { FIN = 1, SYN = 2, RST = 4, URG = 32 };
enum { AF_INET = 2, AF_INET6 = 10, IS_TCP = 6 };

// One direction of a flow; an IPv4 address stands in the first four octets.
struct key {
	u32 source[4];
	u32 destination[4];
	u16 source_port, destination_port;
	u32 family;
};

// Where it comes in and goes out, when it was last seen, and when it last went the hook's way.
struct value {
	u32 in, out;
	u64 seen, shown;
};

struct total {
	u64 packets, octets;
};

struct {
	ARRAY_OF(type, HASH_LRU);
	ARRAY_OF(max_entries, 131072);
	struct key *key;
	struct value *value;
} flows SECTION(".maps");

struct {
	ARRAY_OF(type, ARRAY_PER_CPU);
	ARRAY_OF(max_entries, 1);
	u32 *key;
	struct total *value;
} totals SECTION(".maps");

// Nanoseconds after which a direction that was silent is none of ours any more.
const volatile u64 silence = 300000000000ULL;

// Nanoseconds after which connection tracking is shown a segment of it, as it would forget the connection.
const volatile u64 pause = 30000000000ULL;

INLINE void forget(struct key *key)
{
	struct key other = {
		.source = { key->destination[0], key->destination[1], key->destination[2], key->destination[3] },
		.destination = { key->source[0], key->source[1], key->source[2], key->source[3] },
		.source_port = key->destination_port,
		.destination_port = key->source_port,
		.family = key->family,
	};
	delete(&flows, key);
	delete(&flows, &other);
}

SECTION("classifier")
int bannerwall(struct __sk_buff *packet)
{
	struct key key = {};
	struct fib way = {};
	u32 is_ipv4, header, length, flags, segment;
	u8 *data, *end, *ip, *tcp;

	if (packet->pkt_type != FOR_US || packet->vlan_present)
		return PASS_ON;
	if (packet->protocol == BE16(0x0800)) {
		is_ipv4 = 1;
		header = IPV4;
	} else if (packet->protocol == BE16(0x86dd)) {
		is_ipv4 = 0;
		header = IPV6;
	} else {
		return PASS_ON;
	}
	data = (u8 *)(unsigned long)packet->data;
	end = (u8 *)(unsigned long)packet->data_end;
	if (data + ETHERNET + header + TCP > end) {
		if (pull(packet, ETHERNET + header + TCP))
			return PASS_ON;
		data = (u8 *)(unsigned long)packet->data;
		end = (u8 *)(unsigned long)packet->data_end;
	}
	ip = data + ETHERNET;
	if (is_ipv4) {
		if (ip + IPV4 + TCP > end)
			return PASS_ON;
		// Version 4 without options, no fragment.
		if (ip[0] != 0x45 || ip[9] != IS_TCP || (*(u16 *)(ip + 6) & BE16(0x3fff)))
			return PASS_ON;
		key.family = AF_INET;
		key.source[0] = *(u32 *)(ip + 12);
		key.destination[0] = *(u32 *)(ip + 16);
		tcp = ip + IPV4;
		length = BE16(*(u16 *)(ip + 2));
	} else {
		if (ip + IPV6 + TCP > end)
			return PASS_ON;
		if (ip[0] >> 4 != 6 || ip[6] != IS_TCP)
			return PASS_ON;
		key.family = AF_INET6;
		key.source[0] = *(u32 *)(ip + 8);
		key.source[1] = *(u32 *)(ip + 12);
		key.source[2] = *(u32 *)(ip + 16);
		key.source[3] = *(u32 *)(ip + 20);
		key.destination[0] = *(u32 *)(ip + 24);
		key.destination[1] = *(u32 *)(ip + 28);
		key.destination[2] = *(u32 *)(ip + 32);
		key.destination[3] = *(u32 *)(ip + 36);
		tcp = ip + IPV6;
		length = IPV6 + BE16(*(u16 *)(ip + 4));
	}
	key.source_port = *(u16 *)tcp;
	key.destination_port = *(u16 *)(tcp + 2);
	flags = tcp[13];

	if (flags & (SYN | FIN | RST)) {
		forget(&key);
		return PASS_ON;
	}
	struct value *flow = lookup(&flows, &key);
	if (!flow || flow->in != packet->ingress_ifindex)
		return PASS_ON;
	u64 time = now();
	// Written by the guard's clock and on other processors, so that it may lie a little ahead.
	if ((long long)(time - flow->seen) > (long long)silence) {
		forget(&key);
		return PASS_ON;
	}
	if (flags & URG)
		return PASS_ON;
	if (is_ipv4 ? ip[8] <= 1 : ip[7] <= 1)
		return PASS_ON;
	// A packet that says it is longer than it came, and what is shorter than its own headers, is not ours to judge.
	u32 came = packet->len - ETHERNET;
	u32 headers = header + (tcp[12] >> 4) * 4;
	if (length < headers || headers < header + TCP)
		return PASS_ON;
	if (length > came)
		return PASS_ON;
	segment = packet->gso_size ? headers + packet->gso_size : came;
	if (segment > 0xffff)
		return PASS_ON;

	// As ip_forward() finds it: routes, their MTU, and the neighbour.
	way.family = is_ipv4 ? AF_INET : AF_INET6;
	way.l4_protocol = IS_TCP;
	way.sport = key.source_port;
	way.dport = key.destination_port;
	way.tot_len = segment;
	way.ifindex = packet->ingress_ifindex;
	if (is_ipv4)
		way.tos = ip[1] & 0xfc;
	else
		way.flowinfo = *(u32 *)ip & __builtin_bswap32(0x0fffffff);
	way.src[0] = key.source[0];
	way.src[1] = key.source[1];
	way.src[2] = key.source[2];
	way.src[3] = key.source[3];
	way.dst[0] = key.destination[0];
	way.dst[1] = key.destination[1];
	way.dst[2] = key.destination[2];
	way.dst[3] = key.destination[3];
	if (find_way(packet, &way, sizeof way, 0) != 0 || way.ifindex != flow->out)
		return PASS_ON;

	flow->seen = time;
	if ((long long)(time - flow->shown) > (long long)pause) {
		flow->shown = time;
		return PASS_ON;
	}
	u32 first = 0;
	struct total *total = lookup(&totals, &first);
	if (total) {
		total->packets += packet->gso_segs ? packet->gso_segs : 1;
		total->octets += length;
	}
	if (is_ipv4) {
		// The field is one less in its upper octet, so that the sum is one more (RFC 1624).
		u32 sum = *(u16 *)(ip + 10) + (u32)BE16(0x0100);
		*(u16 *)(ip + 10) = (u16)(sum + (sum >= 0xffff));
		ip[8] -= 1;
	} else {
		ip[7] -= 1;
	}
	struct neighbour next = {
		.family = way.family,
		.address = { way.dst[0], way.dst[1], way.dst[2], way.dst[3] },
	};
	return redirect(way.ifindex, &next, sizeof next, 0);
}

char terms[] SECTION("license") = "GPL";
