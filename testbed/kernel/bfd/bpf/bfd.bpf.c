// SPDX-License-Identifier: GPL-2.0
/* BFD as the ports of a switch do it: they send a session's packets and check the peer's, and the control plane hears only
 * of changes (RFC 5880 section 6.8).
 *
 * A program cannot make a packet. So a template of each session, a frame with the packet, circulates in the switch's
 * loopback interface: its queue (fq) holds it until the next packet is due, or the detection time is over. Each time it
 * comes round it goes out by the port, and a clone of it waits for the next time. */
#include "kernel.h"
#include "layout.h"

char LICENSE[] SEC("license") = "GPL";

/* The frame's MACs while it circulates. The kernel writes those of the port when the packet leaves. */
struct template {
	__u8 mark[4];
	__u16 slot;
	__u8 unused[2];
	__u32 generation; /* 0: it goes out once */
};

/* Where a packet to a socket belongs: its discriminator, or the interface while the peer does not know it. */
struct place {
	__u64 socket;
	__u32 discriminator, ifindex;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, SLOTS);
	__type(key, __u32);
	__type(value, struct session);
} sessions SEC(".maps");
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 2 * SLOTS);
	__type(key, struct place);
	__type(value, __u32);
} slots SEC(".maps");

/* A pseudo-random number of the session's own: the same in each run with the same seed. */
static __always_inline __u64 draw(struct session *session)
{
	__u64 x = session->random;

	x ^= x << 13;
	x ^= x >> 7;
	x ^= x << 17;
	session->random = x;
	return x >> 16;
}

static __always_inline __u64 next_time(struct session *session, __u64 now)
{
	__u64 next = now + session->shortest_ns, longest = next + session->spread_ns, step = session->spread_ns;

	if (!step)
		return next;
	if (draw(session) & 1)
		next += step;
	next += step - 1 - step / 8; /* the next multiple, or one that is hardly over: a packet leaves a little late */
	next -= next % step;
	return next > longest ? next - step : next;
}

SEC("tcx/ingress")
int comes_round(struct __sk_buff *ctx)
{
	struct template template;
	struct session *session;
	__u64 now, due = 0, deadline;
	__u32 slot;
	int sends;

	if (bpf_skb_load_bytes(ctx, 0, &template, sizeof(template)) || *(__u32 *)template.mark != bpf_htonl(0x02424644))
		return NEXT;
	slot = template.slot;
	session = bpf_map_lookup_elem(&sessions, &slot);
	if (!session)
		return SHOT;
	if (!template.generation) {
		session->sent++;
		return bpf_redirect_neigh(session->ifindex, (void *)0, 0, 0);
	}
	if (template.generation != session->generation)
		return SHOT;
	now = bpf_ktime_get_ns();
	if (session->detection_ns) {
		due = deadline = session->received_at + session->detection_ns;
		if (deadline <= now) /* to the control plane, by a packet socket */
			return NEXT;
	}
	sends = session->shortest_ns && session->next_at <= now;
	if (sends) {
		session->next_at = next_time(session, now);
	}
	if (session->shortest_ns && (!due || session->next_at < due))
		due = session->next_at;
	if (!due)
		return SHOT;
	bpf_skb_set_tstamp(ctx, due, BPF_SKB_TSTAMP_DELIVERY_MONO);
	if (!sends)
		return bpf_redirect(ctx->ifindex, 0);
	bpf_clone_redirect(ctx, ctx->ifindex, 0);
	bpf_skb_set_tstamp(ctx, 0, BPF_SKB_TSTAMP_UNSPEC);
	session->sent++;
	return bpf_redirect_neigh(session->ifindex, (void *)0, 0, 0);
}

/* A packet to the control plane's socket: its length, or 0 when it changes nothing. */
SEC("socket")
int comes_in(struct __sk_buff *ctx)
{
	struct place place = {.socket = bpf_get_socket_cookie(ctx)};
	__u64 packet[3];
	struct session *session;
	__u32 *slot;
	__u8 hops;

	if (ctx->len != 8 + PACKET || bpf_skb_load_bytes(ctx, 8, packet, PACKET))
		return ctx->len;
	place.discriminator = packet[1]; /* Your Discriminator, in network order */
	if (!place.discriminator)
		place.ifindex = ctx->ifindex;
	slot = bpf_map_lookup_elem(&slots, &place);
	if (!slot)
		return ctx->len;
	session = bpf_map_lookup_elem(&sessions, slot);
	if (!session || !packet[0] || packet[0] != session->expected[0] || packet[1] != session->expected[1] ||
	    packet[2] != session->expected[2])
		return ctx->len;
	if (bpf_skb_load_bytes_relative(ctx, ctx->protocol == bpf_htons(ETH_P_IP) ? 8 : 7, &hops, 1, BPF_HDR_START_NET) ||
	    hops != HOPS)
		return ctx->len;
	session->received++;
	session->received_at = bpf_ktime_get_ns();
	return 0;
}
