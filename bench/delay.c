// A delay line between two network namespaces, for kernels without netem.
//
// Every packet that enters one end leaves the other after a fixed time, in order, whatever else is
// on its way: a line of unlimited width. Each end is a tun device that this program makes in the
// namespace given by its file (as in /run/netns); addresses and routes are the caller's to set.
//
//     delay NAMESPACE NAMESPACE MICROSECONDS INTERFACE
//
// It says "ready" on stdout once both ends are up, forwards until SIGTERM or SIGINT, and then says
// how many packets went through, how many it had to drop (a full queue), and by how much the latest
// one was late, in microseconds.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { SLOTS = 32768, LONGEST = 2048, NANOSECONDS = 1000000000 };

struct packet {
    uint64_t due;
    size_t length;
    unsigned char octets[LONGEST];
};

// What is on its way in one direction: the packets at [first, last) modulo SLOTS.
struct way {
    int from, to;
    uint64_t first, last;
    struct packet *packets;
};

static volatile sig_atomic_t stopped;
static uint64_t passed, dropped, latest;

static void stop(int signal) {
    (void)signal;
    stopped = 1;
}

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static uint64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * NANOSECONDS + (uint64_t)time.tv_nsec;
}

// Makes a tun device in a namespace and brings it up.
static int tun_in(const char *namespace, const char *name) {
    int home = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
    int away = open(namespace, O_RDONLY | O_CLOEXEC);
    if (home < 0 || away < 0 || setns(away, CLONE_NEWNET) < 0)
        fail(namespace);
    int tun = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
    struct ifreq request = {.ifr_flags = IFF_TUN | IFF_NO_PI};
    strncpy(request.ifr_name, name, IFNAMSIZ - 1);
    if (tun < 0 || ioctl(tun, TUNSETIFF, &request) < 0)
        fail("TUNSETIFF");
    int control = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    request.ifr_qlen = 10000;
    if (control < 0 || ioctl(control, SIOCSIFTXQLEN, &request) < 0)
        fail("SIOCSIFTXQLEN");
    request.ifr_flags = IFF_UP | IFF_RUNNING;
    if (ioctl(control, SIOCSIFFLAGS, &request) < 0)
        fail("SIOCSIFFLAGS");
    if (setns(home, CLONE_NEWNET) < 0)
        fail("setns");
    close(control);
    close(away);
    close(home);
    return tun;
}

// Takes in everything that waits at the near end.
static void take(struct way *way, uint64_t delay) {
    for (;;) {
        struct packet *packet = &way->packets[way->last % SLOTS];
        int full = way->last - way->first == SLOTS;
        unsigned char nowhere[LONGEST];
        ssize_t length = read(way->from, full ? nowhere : packet->octets, LONGEST);
        if (length <= 0)
            return;
        if (full) {
            dropped++;
            continue;
        }
        packet->due = now() + delay;
        packet->length = (size_t)length;
        way->last++;
    }
}

// Lets out everything whose time has come; gives when the next one's comes.
static uint64_t give(struct way *way) {
    while (way->first != way->last) {
        struct packet *packet = &way->packets[way->first % SLOTS];
        uint64_t time = now();
        if (packet->due > time)
            return packet->due;
        if (time - packet->due > latest)
            latest = time - packet->due;
        if (write(way->to, packet->octets, packet->length) < 0)
            dropped++;
        else
            passed++;
        way->first++;
    }
    return UINT64_MAX;
}

static void forward(struct way ways[2], uint64_t delay) {
    while (!stopped) {
        uint64_t due = UINT64_MAX;
        for (int side = 0; side < 2; side++) {
            take(&ways[side], delay);
            uint64_t next = give(&ways[side]);
            due = next < due ? next : due;
        }
        uint64_t time = now();
        uint64_t wait = due <= time ? 0 : due - time;
        if (wait > NANOSECONDS / 10)
            wait = NANOSECONDS / 10;
        struct timespec timeout = {.tv_nsec = (long)wait};
        struct pollfd ends[2] = {{.fd = ways[0].from, .events = POLLIN}, {.fd = ways[1].from, .events = POLLIN}};
        if (ppoll(ends, 2, &timeout, NULL) < 0 && errno != EINTR)
            fail("ppoll");
    }
}

int main(int count, char **words) {
    if (count != 5) {
        fprintf(stderr, "usage: delay NAMESPACE NAMESPACE MICROSECONDS INTERFACE\n");
        return 2;
    }
    struct sigaction action = {.sa_handler = stop};
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    uint64_t delay = strtoull(words[3], NULL, 10) * 1000;
    struct way ways[2];
    for (int side = 0; side < 2; side++) {
        ways[side] = (struct way){.packets = malloc(SLOTS * sizeof(struct packet))};
        if (!ways[side].packets)
            fail("malloc");
        ways[side].from = tun_in(words[1 + side], words[4]);
    }
    ways[0].to = ways[1].from;
    ways[1].to = ways[0].from;
    // Late packets would be the forwarder's and not the line's; without the right to this it only
    // is less exact, which its last line tells.
    struct sched_param priority = {.sched_priority = 10};
    sched_setscheduler(0, SCHED_FIFO, &priority);
    prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);
    puts("ready");
    fflush(stdout);
    forward(ways, delay);
    printf("passed %llu, dropped %llu, latest %llu us late\n", (unsigned long long)passed,
           (unsigned long long)dropped, (unsigned long long)(latest / 1000));
    return 0;
}
