/*
 * The design that the paper measured its Rust program against, in our own words: libnetfilter_queue's
 * classic interface, a receive that never waits, one packet and one verdict a call, whole packets
 * copied, default buffers. Accepts everything and looks at nothing.
 *
 * usage: paper QUEUE; prints its counts on SIGTERM or SIGINT.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/netfilter.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

#include <libnetfilter_queue/libnetfilter_queue.h>

static volatile sig_atomic_t stop;
static unsigned long packets, missed, overruns;
static uint32_t last_id;

static void on_signal(int number)
{
	(void)number;
	stop = 1;
}

static int on_packet(struct nfq_q_handle *queue, struct nfgenmsg *message, struct nfq_data *data, void *context)
{
	(void)message;
	(void)context;
	struct nfqnl_msg_packet_hdr *header = nfq_get_msg_packet_hdr(data);
	if (!header)
		return -1;
	uint32_t id = ntohl(header->packet_id);
	missed += id - last_id - 1;
	last_id = id;
	packets++;
	return nfq_set_verdict(queue, id, NF_ACCEPT, 0, NULL);
}

int main(int count, char **arguments)
{
	static char buffer[0x10000 + 4096] __attribute__((aligned(8)));
	if (count != 2) {
		fprintf(stderr, "usage: %s QUEUE\n", arguments[0]);
		return 2;
	}
	signal(SIGTERM, on_signal);
	signal(SIGINT, on_signal);
	struct nfq_handle *handle = nfq_open();
	if (!handle) {
		perror("nfq_open");
		return 1;
	}
	struct nfq_q_handle *queue = nfq_create_queue(handle, (uint16_t)atoi(arguments[1]), on_packet, NULL);
	if (!queue) {
		perror("nfq_create_queue");
		return 1;
	}
	if (nfq_set_mode(queue, NFQNL_COPY_PACKET, 0xffff) < 0) {
		perror("nfq_set_mode");
		return 1;
	}
	int fd = nfq_fd(handle);
	fprintf(stderr, "ready\n");
	while (!stop) {
		ssize_t length = recv(fd, buffer, sizeof buffer, MSG_DONTWAIT);
		if (length >= 0)
			nfq_handle_packet(handle, buffer, (int)length);
		else if (errno == ENOBUFS)
			overruns++;
		else if (errno != EAGAIN && errno != EINTR) {
			perror("recv");
			return 1;
		}
	}
	fprintf(stderr, "packets %lu missed %lu overruns %lu\n", packets, missed, overruns);
	nfq_destroy_queue(queue);
	nfq_close(handle);
	return 0;
}
