/* Packets of a switch without a next hop: the kernel holds them until its neighbour entry has a MAC (arp_queue), and they have
 * not come to the program for what goes out. So the program for what comes in charges them to the port that they came by, and
 * stops its peer.
 *
 * The kernel sends what it held one by one, in the context of whoever wrote the entry, and packets that come in meanwhile
 * would be before them. So a switch and the links to it stand still while it does that. */
#ifndef NEXT_HOP_H
#define NEXT_HOP_H
#include "roce.h"

#define UNRESOLVED_FOR 1000000000 /* ns after the last packet that was held, in which packets are looked up */
#define FLUSH_NS 5000		  /* between two looks whether a switch has sent what it held */
#define AF_INET 2
#define AF_INET6 10
#define FIB_NO_NEIGHBOUR 7

/* MACs of a switch's own interfaces. */
struct router {
	__u8 mac[6];
	__u16 owner;
};
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, struct router);
	__type(value, __u32);
} routers SEC(".maps");

static __always_inline int is_for_router(struct __sk_buff *ctx, __u32 owner)
{
	struct router key = {};

	if (ctx->pkt_type == 0) /* PACKET_HOST: it is the port's own MAC */
		return 1;
	if (bpf_skb_load_bytes(ctx, 0, key.mac, 6))
		return 0;
	key.owner = owner;
	if (!key.mac[0] && !key.mac[1] && key.mac[2] == 0x5e && !key.mac[3] && (key.mac[4] == 1 || key.mac[4] == 2))
		return 1; /* VRRP */
	return bpf_map_lookup_elem(&routers, &key) != (void *)0;
}
/* When a packet last went to the kernel for the sake of a next hop, which then asks for its MAC. */
struct next_hop {
	__u32 address[4], owner;
};
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, struct next_hop);
	__type(value, __u64);
} asked SEC(".maps");

enum { HAS_NEXT_HOP, LACKS_NEXT_HOP, ASKS_FOR_NEXT_HOP };

/* Whether a packet that came in is to be routed to an address that has no MAC, and whether it is the one that asks. */
GLOBAL int look_up(struct __sk_buff *ctx, __u32 owner, __u64 now)
{
	struct bpf_fib_lookup found = { .ifindex = ctx->ifindex };
	struct next_hop key = { .owner = owner };
	__u64 *last;
	__u8 ip[40];
	__u16 ports[2];

	if (!is_for_router(ctx, owner))
		return 0;
	if (ctx->protocol == bpf_htons(ETH_P_IP)) {
		if (bpf_skb_load_bytes(ctx, 14, ip, 20) || bpf_skb_load_bytes(ctx, 14 + ((ip[0] & 15) << 2), ports, 4))
			return 0;
		found.family = AF_INET;
		found.tos = ip[1] & 0xfc;
		found.l4_protocol = ip[9];
		__builtin_memcpy(found.source, ip + 12, 4);
		__builtin_memcpy(found.target, ip + 16, 4);
	} else if (ctx->protocol == bpf_htons(ETH_P_IPV6)) {
		if (bpf_skb_load_bytes(ctx, 14, ip, 40) || bpf_skb_load_bytes(ctx, 54, ports, 4))
			return 0;
		found.family = AF_INET6;
		__builtin_memcpy(&found.tos, ip, 4);
		found.tos &= bpf_htonl(0x0fffffff);
		found.l4_protocol = ip[6];
		__builtin_memcpy(found.source, ip + 8, 16);
		__builtin_memcpy(found.target, ip + 24, 16);
	} else {
		return 0;
	}
	found.sport = ports[0];
	found.dport = ports[1];
	if (bpf_fib_lookup(ctx, &found, sizeof(found), 0) != FIB_NO_NEIGHBOUR)
		return HAS_NEXT_HOP;
	__builtin_memcpy(key.address, found.target, 16);
	last = bpf_map_lookup_elem(&asked, &key);
	if (last && now - *last < UNRESOLVED_FOR)
		return LACKS_NEXT_HOP;
	bpf_map_update_elem(&asked, &key, &now, 0);
	return ASKS_FOR_NEXT_HOP;
}

/* What becomes of such a packet; `port` it came in by. */
GLOBAL int wait_for_next_hop(struct __sk_buff *ctx, __u32 port, struct port_config *config, __u32 class)
{
	struct port_state *state = state_of(port);
	__u64 now = bpf_ktime_get_ns();
	struct bpf_spin_lock *lock;
	struct pool *pool;
	int verdict, lacks;

	if (!config || !state || class >= CLASSES)
		return NEXT;
	pool = pool_of(config->owner);
	lock = pool_lock(config->owner);
	if (!pool || !lock)
		return NEXT;
	lacks = look_up(ctx, config->owner, now);
	if (lacks == HAS_NEXT_HOP)
		return NEXT;
	if (pool->miss_action != MISS_KEEP) {
		if (lacks != ASKS_FOR_NEXT_HOP && (pool->miss_action == MISS_DROP || pool->cpu_at > now)) {
			state->missed[class]++;
			return SHOT;
		}
		pool->cpu_at = now + pool->cpu_gap_ns;
		ctx->tc_index = TAG(0, class);
		return NEXT;
	}
	if (!(config->lossless & 1 << class))
		return NEXT;
	bpf_spin_lock(lock);
	verdict = charge_waiting(pool, &pool->class[class], config, state, class, ctx->len);
	bpf_spin_unlock(lock);
	if (must_stop(verdict, state, class))
		stop_peer(ctx, config, state, class);
	if (verdict & REFUSED) {
		state->missed[class]++;
		return SHOT;
	}
	ctx->tc_index = TAG(port | CHARGED, class);
	return NEXT;
}
static __always_inline void waits_no_more(struct port_state *state, __u32 class)
{
	if (state && state->group[class & (CLASSES - 1)].waiting)
		__sync_fetch_and_sub(&state->group[class & (CLASSES - 1)].waiting, 1);
}
static __always_inline int misses(struct pool *pool)
{
	return pool->unresolved_at && bpf_ktime_get_ns() - pool->unresolved_at < UNRESOLVED_FOR;
}

/* The switch of a packet that came in by one of its ports. */
static __always_inline struct pool *pool_of_packet(__u32 tag)
{
	__u32 from = PORT_OF(tag);
	struct port_config *config;

	if (!from || from >= MADE)
		return (void *)0;
	config = config_of(from & ~CHARGED);
	return config && config->kind == SWITCH ? pool_of(config->owner) : (void *)0;
}
SEC("fentry/__neigh_event_send")
int BPF_PROG(is_held, struct neighbour *neighbour, struct sk_buff *skb, int at_once)
{
	struct pool *pool = skb ? pool_of_packet(BPF_CORE_READ(skb, tc_index)) : (void *)0;

	if (pool)
		pool->unresolved_at = bpf_ktime_get_ns();
	return 0;
}
static __always_inline struct pool *pool_of_neighbour(struct neighbour *neighbour)
{
	void *queue = (void *)neighbour + bpf_core_field_offset(struct neighbour, arp_queue);
	struct sk_buff *first = BPF_CORE_READ(neighbour, arp_queue.next);

	if (!first || (void *)first == queue)
		return (void *)0;
	return pool_of_packet(BPF_CORE_READ(first, tc_index));
}
/* The entries that are being written, and their switches. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 256);
	__type(key, __u64);
	__type(value, __u64);
} flushes SEC(".maps");

SEC("tp_btf/neigh_update")
int BPF_PROG(flush_begins, struct neighbour *neighbour)
{
	struct pool *pool = pool_of_neighbour(neighbour);
	__u64 key = (__u64)neighbour, owner;

	if (!pool)
		return 0;
	owner = pool->number;
	pool->flushing = 1;
	bpf_map_update_elem(&flushes, &key, &owner, 0);
	return 0;
}
SEC("tp_btf/neigh_update_done")
int BPF_PROG(flush_ends, struct neighbour *neighbour)
{
	__u64 key = (__u64)neighbour, *owner = bpf_map_lookup_elem(&flushes, &key);
	struct pool *pool = owner ? pool_of(*owner) : (void *)0;

	if (pool)
		pool->flushing = 0;
	if (owner)
		bpf_map_delete_elem(&flushes, &key);
	return 0;
}
/* A packet that the kernel drops while it holds it: its charge comes back. Its length there is without the Ethernet header. */
SEC("tp_btf/kfree_skb")
int BPF_PROG(is_dropped, struct sk_buff *skb)
{
	__u32 tag = BPF_CORE_READ(skb, tc_index), from = PORT_OF(tag);
	__u64 before;

	if (from >= MADE || !(from & CHARGED))
		return 0;
	before = BPF_CORE_READ(skb, data) - BPF_CORE_READ(skb, head) - BPF_CORE_READ(skb, mac_header);
	waits_no_more(state_of(from & ~CHARGED), CLASS_OF(tag));
	give_back_charge(from & ~CHARGED, CLASS_OF(tag), BPF_CORE_READ(skb, len) + before);
	return 0;
}
#endif
