/*
 * The best C that we can write for accepting everything: 64 packets a receive call, their verdicts in
 * one send, large packets queued whole (F_GSO), 512 octets of each copied, a large receive buffer that
 * survives overruns. No library on the packet path: a verdict is a template with an id in it. Looks at
 * nothing, so it is a bound for programs that do.
 *
 * usage: tuned QUEUE; prints its counts on SIGTERM or SIGINT.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netfilter/nfnetlink_queue.h>
#include <linux/netlink.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define BATCH 64
#define COPY_RANGE 512
#define SLOT (COPY_RANGE + 512 + 64)

static volatile sig_atomic_t stop;
static char slots[BATCH][SLOT] __attribute__((aligned(64)));

struct verdict {
	struct nlmsghdr netlink;
	struct nfgenmsg netfilter;
	struct nlattr attribute;
	struct nfqnl_msg_verdict_hdr value;
};

struct configuration {
	struct nlmsghdr netlink;
	struct nfgenmsg netfilter;
	struct nlattr command_attribute;
	struct nfqnl_msg_config_cmd command;
	struct nlattr parameters_attribute;
	struct nfqnl_msg_config_params parameters;
	uint8_t padding[3];
	struct nlattr length_attribute;
	uint32_t length;
	struct nlattr flags_attribute;
	uint32_t flags;
	struct nlattr mask_attribute;
	uint32_t mask;
} __attribute__((packed));

static void on_signal(int number)
{
	(void)number;
	stop = 1;
}

static struct nlattr attribute(uint16_t type, size_t length)
{
	return (struct nlattr){ .nla_len = (uint16_t)(sizeof(struct nlattr) + length), .nla_type = type };
}

/* Binds the queue with all its settings in one acknowledged message. */
static int bind_queue(int fd, uint16_t queue)
{
	struct configuration message = {
		.netlink = { .nlmsg_len = sizeof message,
			     .nlmsg_type = (NFNL_SUBSYS_QUEUE << 8) | NFQNL_MSG_CONFIG,
			     .nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK },
		.netfilter = { .version = NFNETLINK_V0, .res_id = htons(queue) },
		.command_attribute = attribute(NFQA_CFG_CMD, sizeof message.command),
		.command = { .command = NFQNL_CFG_CMD_BIND },
		.parameters_attribute = attribute(NFQA_CFG_PARAMS, sizeof message.parameters),
		.parameters = { .copy_range = htonl(COPY_RANGE), .copy_mode = NFQNL_COPY_PACKET },
		.length_attribute = attribute(NFQA_CFG_QUEUE_MAXLEN, 4),
		.length = htonl(16384),
		.flags_attribute = attribute(NFQA_CFG_FLAGS, 4),
		.flags = htonl(NFQA_CFG_F_GSO | NFQA_CFG_F_FAIL_OPEN),
		.mask_attribute = attribute(NFQA_CFG_MASK, 4),
		.mask = htonl(NFQA_CFG_F_GSO | NFQA_CFG_F_FAIL_OPEN),
	};
	struct {
		struct nlmsghdr netlink;
		struct nlmsgerr error;
		char rest[256];
	} answer;
	if (send(fd, &message, sizeof message, 0) < 0 || recv(fd, &answer, sizeof answer, 0) < 0)
		return -1;
	errno = -answer.error.error;
	return errno ? -1 : 0;
}

/* The packet's identification: NFQA_PACKET_HDR is the first attribute that the kernel writes. */
static int packet_id(const char *slot, unsigned length, uint32_t *id)
{
	const struct nlmsghdr *header = (const void *)slot;
	size_t at = sizeof *header + sizeof(struct nfgenmsg);
	if (length < at || header->nlmsg_type != ((NFNL_SUBSYS_QUEUE << 8) | NFQNL_MSG_PACKET))
		return 0;
	while (at + sizeof(struct nlattr) <= length) {
		const struct nlattr *attribute = (const void *)(slot + at);
		if (attribute->nla_len < sizeof *attribute)
			return 0;
		if (attribute->nla_type == NFQA_PACKET_HDR && at + 8 <= length) {
			uint32_t value;
			memcpy(&value, attribute + 1, sizeof value);
			*id = value;
			return 1;
		}
		at += NLA_ALIGN(attribute->nla_len);
	}
	return 0;
}

int main(int count, char **arguments)
{
	static struct mmsghdr headers[BATCH];
	static struct iovec vectors[BATCH];
	static struct verdict verdicts[BATCH];
	unsigned long packets = 0, missed = 0, receives = 0, others = 0;
	uint32_t last_id = 0;

	if (count != 2) {
		fprintf(stderr, "usage: %s QUEUE\n", arguments[0]);
		return 2;
	}
	struct sigaction action = { .sa_handler = on_signal };
	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGINT, &action, NULL);

	uint16_t queue = (uint16_t)atoi(arguments[1]);
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_NETFILTER);
	struct sockaddr_nl kernel = { .nl_family = AF_NETLINK };
	int octets = 32 << 20, yes = 1;
	if (fd < 0 || bind(fd, (void *)&kernel, sizeof kernel) < 0 ||
	    connect(fd, (void *)&kernel, sizeof kernel) < 0 ||
	    setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &octets, sizeof octets) < 0 ||
	    setsockopt(fd, SOL_NETLINK, NETLINK_NO_ENOBUFS, &yes, sizeof yes) < 0) {
		perror("netlink socket");
		return 1;
	}
	if (bind_queue(fd, queue) < 0) {
		perror("NFQNL_CFG_CMD_BIND");
		return 1;
	}
	for (int i = 0; i < BATCH; i++) {
		vectors[i] = (struct iovec){ .iov_base = slots[i], .iov_len = SLOT };
		headers[i].msg_hdr = (struct msghdr){ .msg_iov = &vectors[i], .msg_iovlen = 1 };
		verdicts[i] = (struct verdict){
			.netlink = { .nlmsg_len = sizeof(struct verdict),
				     .nlmsg_type = (NFNL_SUBSYS_QUEUE << 8) | NFQNL_MSG_VERDICT,
				     .nlmsg_flags = NLM_F_REQUEST },
			.netfilter = { .version = NFNETLINK_V0, .res_id = htons(queue) },
			.attribute = attribute(NFQA_VERDICT_HDR, sizeof(struct nfqnl_msg_verdict_hdr)),
			.value = { .verdict = htonl(NF_ACCEPT) },
		};
	}
	fprintf(stderr, "ready\n");
	while (!stop) {
		int received = recvmmsg(fd, headers, BATCH, MSG_WAITFORONE, NULL);
		if (received < 0) {
			if (errno == EINTR || errno == ENOBUFS)
				continue;
			perror("recvmmsg");
			return 1;
		}
		int answered = 0;
		for (int i = 0; i < received; i++) {
			uint32_t id;
			if (!packet_id(slots[i], headers[i].msg_len, &id)) {
				others++;
				continue;
			}
			missed += ntohl(id) - last_id - 1;
			last_id = ntohl(id);
			verdicts[answered++].value.id = id;
		}
		packets += (unsigned long)answered;
		receives++;
		if (answered && send(fd, verdicts, (size_t)answered * sizeof verdicts[0], 0) < 0)
			perror("send");
	}
	fprintf(stderr, "packets %lu missed %lu receives %lu others %lu\n", packets, missed, receives, others);
	return 0;
}
