// A tunnel in C that takes the same steps as `bannerwall tunnel --plain`: packets of a tun device to a peer over UDP and
// back, as super-packets by UDP_SEGMENT and UDP_GRO, or packet by packet. It writes and reads the same datagrams.
//
// usage: tunnel LOCAL PORT PEER PORT DEVICE [packets]      (IPv4; `packets` goes packet by packet)
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <unistd.h>

#ifndef TUN_F_USO4
#define TUN_F_USO4 0x20
#define TUN_F_USO6 0x40
#endif

enum { VNET = 10, HEADER = 8, AT_ONCE = 64, MOST = 128, SLOTS = 16, LONGEST = 1 << 17, MOST_OCTETS = 65507 };

static int device, carrier, supers;
static size_t each;
static _Atomic uint64_t sent, received, dropped;

static void fail(const char *what) {
  perror(what);
  exit(1);
}

static void open_device(const char *name) {
  struct ifreq request = {.ifr_flags = IFF_TUN | IFF_NO_PI | (supers ? IFF_VNET_HDR : 0)};
  int little = 1;
  strncpy(request.ifr_name, name, IFNAMSIZ - 1);
  device = open("/dev/net/tun", O_RDWR);
  if (device < 0 || ioctl(device, TUNSETIFF, &request) < 0)
    fail("tun device");
  if (!supers)
    return;
  unsigned features = TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6 | TUN_F_USO4 | TUN_F_USO6;
  if (ioctl(device, TUNSETOFFLOAD, features) < 0 || ioctl(device, TUNSETVNETLE, &little) < 0)
    fail("offload");
}

static void open_carrier(char **words) {
  struct sockaddr_in local = {.sin_family = AF_INET, .sin_port = htons(atoi(words[1]))}, peer = local;
  int size = 8 << 20, on = 1, discover = IP_PMTUDISC_DO, mtu;
  socklen_t length = sizeof mtu;
  inet_pton(AF_INET, words[0], &local.sin_addr);
  inet_pton(AF_INET, words[2], &peer.sin_addr);
  peer.sin_port = htons(atoi(words[3]));
  carrier = socket(AF_INET, SOCK_DGRAM, 0);
  if (bind(carrier, (void *)&local, sizeof local) < 0 || connect(carrier, (void *)&peer, sizeof peer) < 0)
    fail("socket");
  setsockopt(carrier, SOL_SOCKET, SO_RCVBUFFORCE, &size, sizeof size);
  setsockopt(carrier, SOL_SOCKET, SO_SNDBUFFORCE, &size, sizeof size);
  setsockopt(carrier, IPPROTO_IP, IP_MTU_DISCOVER, &discover, sizeof discover);
  if (getsockopt(carrier, IPPROTO_IP, IP_MTU, &mtu, &length) < 0)
    fail("MTU");
  each = mtu - 28 < MOST_OCTETS ? mtu - 28 : MOST_OCTETS;
  int cut = each;
  if (supers && (setsockopt(carrier, SOL_UDP, UDP_GRO, &on, sizeof on) < 0 ||
                 setsockopt(carrier, SOL_UDP, UDP_SEGMENT, &cut, sizeof cut) < 0))
    fail("UDP_GRO, UDP_SEGMENT");
}

static void number(uint8_t *header, uint64_t packet, size_t piece, int last) {
  uint64_t bits = packet << 8 | piece << 1 | last;
  header[0] = 1;
  for (int at = 7; at > 0; at--, bits >>= 8)
    header[at] = bits;
}

static void *send_all(void *unused) {
  static uint8_t buffer[LONGEST], headers[AT_ONCE][HEADER];
  struct iovec parts[2 * AT_ONCE];
  struct timeval now;
  gettimeofday(&now, NULL);
  uint64_t packet = now.tv_sec * 1000000ull + now.tv_usec;
  for (;;) {
    ssize_t got = read(device, buffer, sizeof buffer);
    if (got < 0 && errno == EINTR)
      continue;
    if (got < 0)
      fail("read");
    uint8_t *start = buffer;
    size_t length = got;
    // A header goes along only where it says something.
    if (supers && length >= VNET && !(buffer[0] & 1) && !buffer[1])
      start += VNET, length -= VNET;
    size_t room = each - HEADER, pieces = (length + room - 1) / room, at_once = supers ? MOST_OCTETS / each : 1;
    if (at_once > AT_ONCE)
      at_once = AT_ONCE;
    int lost = pieces > MOST;
    for (size_t first = 0; first < pieces && !lost; first += at_once) {
      size_t count = pieces - first < at_once ? pieces - first : at_once;
      for (size_t index = 0; index < count; index++) {
        size_t piece = first + index, from = piece * room, to = from + room < length ? from + room : length;
        number(headers[index], packet, piece, piece + 1 == pieces);
        parts[2 * index] = (struct iovec){headers[index], HEADER};
        parts[2 * index + 1] = (struct iovec){start + from, to - from};
      }
      struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2 * count};
      lost = sendmsg(carrier, &message, 0) < 0;
    }
    packet++;
    *(lost ? &dropped : &sent) += 1;
  }
  return unused;
}

struct piece {
  uint64_t packet;
  unsigned piece, last;
  uint8_t *octets;
  size_t length;
};

static void deliver(struct iovec *parts, size_t count) {
  static const uint8_t none[VNET];
  uint8_t first = *(uint8_t *)parts[1].iov_base;
  int is_ip = first >> 4 == 4 || first >> 4 == 6;
  parts[0] = (struct iovec){(void *)none, supers && is_ip ? VNET : 0};
  if (!supers && !is_ip)
    dropped++;
  else if (writev(device, parts, count + 1) < 0)
    dropped++;
  else
    received++;
}

// Pieces that did not come by one call.
static struct slot {
  int used;
  uint64_t packet;
  unsigned count, there;
  size_t end, from[MOST], length[MOST];
  uint8_t octets[65600];
} slots[SLOTS];

static void keep(struct piece *piece) {
  static unsigned next;
  struct slot *slot = NULL;
  for (int at = 0; at < SLOTS && !slot; at++)
    if (slots[at].used && slots[at].packet == piece->packet)
      slot = &slots[at];
  for (int at = 0; at < SLOTS && !slot; at++)
    if (!slots[at].used)
      (slot = &slots[at])->count = 0;
  if (!slot) {
    slot = &slots[next++ % SLOTS];
    slot->used = 0;
    dropped++;
  }
  if (!slot->used) {
    slot->used = 1;
    slot->packet = piece->packet;
    slot->count = slot->there = slot->end = 0;
    memset(slot->length, 0, sizeof slot->length);
  }
  if (slot->length[piece->piece] || slot->end + piece->length > sizeof slot->octets) {
    dropped++;
    return;
  }
  memcpy(slot->octets + slot->end, piece->octets, piece->length);
  slot->from[piece->piece] = slot->end;
  slot->length[piece->piece] = piece->length;
  slot->end += piece->length;
  slot->there++;
  if (piece->last)
    slot->count = piece->piece + 1;
  if (slot->there != slot->count)
    return;
  struct iovec parts[MOST + 1];
  for (unsigned at = 0; at < slot->count; at++)
    parts[at + 1] = (struct iovec){slot->octets + slot->from[at], slot->length[at]};
  deliver(parts, slot->count);
  slot->used = 0;
}

static void *receive_all(void *unused) {
  static uint8_t buffer[LONGEST];
  static struct piece pieces[LONGEST / HEADER];
  for (;;) {
    char control[64] __attribute__((aligned(8)));
    struct iovec part = {buffer, sizeof buffer};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    ssize_t got = recvmsg(carrier, &message, 0);
    if (got < 0) {
      if (errno == EINTR || errno == ECONNREFUSED)
        continue;
      fail("recvmsg");
    }
    size_t stride = got, count = 0;
    struct cmsghdr *kind = CMSG_FIRSTHDR(&message);
    if (kind && kind->cmsg_level == SOL_UDP && kind->cmsg_type == UDP_GRO) {
      int size;
      memcpy(&size, CMSG_DATA(kind), sizeof size);
      stride = size;
    }
    for (size_t at = 0; at < (size_t)got; at += stride) {
      size_t length = (size_t)got - at < stride ? (size_t)got - at : stride;
      uint8_t *start = buffer + at;
      if (length <= HEADER || start[0] != 1) {
        dropped++;
        continue;
      }
      uint64_t bits = 0;
      for (int octet = 1; octet < HEADER; octet++)
        bits = bits << 8 | start[octet];
      pieces[count++] = (struct piece){bits >> 8, bits >> 1 & 127, bits & 1, start + HEADER, length - HEADER};
    }
    for (size_t first = 0, end; first < count; first = end) {
      for (end = first + 1; end < count && !pieces[end - 1].last && pieces[end].packet == pieces[first].packet &&
                            pieces[end].piece == pieces[end - 1].piece + 1;)
        end++;
      if (pieces[first].piece == 0 && pieces[end - 1].last) {
        struct iovec parts[MOST + 1];
        for (size_t at = first; at < end; at++)
          parts[at - first + 1] = (struct iovec){pieces[at].octets, pieces[at].length};
        deliver(parts, end - first);
      } else {
        for (size_t at = first; at < end; at++)
          keep(&pieces[at]);
      }
    }
  }
  return unused;
}

int main(int count, char **words) {
  if (count < 6) {
    fprintf(stderr, "usage: tunnel LOCAL PORT PEER PORT DEVICE [packets]\n");
    return 2;
  }
  supers = !(count > 6 && !strcmp(words[6], "packets"));
  open_carrier(words + 1);
  open_device(words[5]);
  pthread_t threads[2];
  pthread_create(&threads[0], NULL, send_all, NULL);
  pthread_create(&threads[1], NULL, receive_all, NULL);
  fprintf(stderr, "ready: %s\n", words[5]);
  pthread_join(threads[0], NULL);
  return 0;
}
