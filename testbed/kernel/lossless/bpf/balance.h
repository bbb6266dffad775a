/* Load balancing of a switch beyond ECMP: each packet of a class takes any of its equal paths, in turn, at random, or the one
 * with the shortest queue; or each flowlet takes one at random (LetFlow, NSDI 2017).
 *
 * The kernel chooses a path by a packet's hash if that has been set (fib_multipath_hash, policy 1), by ranges of equal size.
 * So the program for what comes in sets one in the middle of a bucket, a 32nd of all hashes, and the program for what goes out
 * sees by which port the packet left: ports of equal paths are known because packets take them. After each change of the
 * switch's routes as many packets as there are buckets find out again. */
#ifndef BALANCE_H
#define BALANCE_H
#include "roce.h"

#define BUCKETS 32
#define SPREAD 32 /* ports that packets to an address take, at most */
#define EXPLORE 256 /* one in so many packets tries another bucket */
#define STRIDE 9    /* from a bucket to the next that is tried: four of them meet each quarter */
#define PATHS 4096  /* addresses; a hash has the number of its address, and a mark */
#define OWN_HASH 0x2a5b
#define HASH_OF(bucket, slot) ((2 * (bucket) + 1) << 26 | (slot) << 14 | OWN_HASH)

/* The ports by which packets to an address leave a switch, by bucket; and one bucket of each port. */
struct paths {
	__u16 port[BUCKETS], ports[SPREAD];
	__u8 bucket[SPREAD];
	__u32 number, turn, offset, tried; /* addresses do not begin with the same port */
	__u32 generation;		   /* of the routes, when the first packet of `turn` came */
	__u32 seen;			   /* buckets that `unseen` returned since then */
};
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, PATHS);
	__type(key, __u32);
	__type(value, struct paths);
} all_paths SEC(".maps");
struct destination {
	__u8 address[16];
	__u64 lab_owner; /* with the number of the lab: slots of an earlier one do not count */
};
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, PATHS);
	__type(key, struct destination);
	__type(value, __u32);
} path_slots SEC(".maps");
SHARED(path_slots_used, struct counter);
struct flowlet {
	__u64 last, bucket;
};
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 8192);
	__type(key, __u64);
	__type(value, struct flowlet);
} flowlets SEC(".maps");

static __always_inline __u64 next_random(__u64 *state)
{
	__u64 x = *state;

	x ^= x << 13;
	x ^= x >> 7;
	x ^= x << 17;
	*state = x;
	return x >> 32;
}

static __always_inline struct paths *paths_to(struct destination *key, struct pool *pool, __u32 *slot)
{
	__u32 *found = bpf_map_lookup_elem(&path_slots, key), zero = 0;
	struct counter *used;
	struct paths *paths;

	if (found) {
		*slot = *found & (PATHS - 1);
		return bpf_map_lookup_elem(&all_paths, slot);
	}
	used = bpf_map_lookup_elem(&path_slots_used, &zero);
	if (!used)
		return (void *)0;
	*slot = __sync_fetch_and_add(&used->value, 1) & (PATHS - 1);
	paths = bpf_map_lookup_elem(&all_paths, slot);
	if (paths) {
		__builtin_memset(paths, 0, sizeof(*paths));
		paths->offset = paths->tried = next_random(&pool->random) & 0xffff;
	}
	bpf_map_update_elem(&path_slots, key, slot, 0);
	return paths;
}

/* What waits at a port of a class; one that may not send has more than any other. */
static __always_inline __u64 load_of(__u32 port, __u32 class)
{
	struct port_state *state = state_of(port);

	if (!state)
		return ~0ULL;
	return state->queue[class & (CLASSES - 1)].bytes | (state->paused >> class & 1) << 62;
}
static __always_inline __u32 least_loaded(struct paths *paths, __u32 class, __u32 start)
{
	__u64 least = ~0ULL;
	__u32 best = 0;
	int i;

	bpf_for(i, 0, SPREAD)
	{
		__u32 one = start % (paths->number ?: 1) + i;
		__u64 load;

		if (i >= paths->number)
			break;
		if (one >= paths->number)
			one -= paths->number;
		one &= SPREAD - 1;
		load = load_of(paths->ports[one], class);
		if (load < least) {
			least = load;
			best = paths->bucket[one];
		}
	}
	return best;
}

/* Whether a packet goes on with a flowlet; its bucket is that of the flowlet then. */
static __always_inline int goes_on(struct flowlet *flowlet, const struct pool *pool, __u64 now, __u32 *bucket)
{
	__u64 last = flowlet->last;

	flowlet->last = now;
	*bucket = flowlet->bucket & (BUCKETS - 1);
	return now - last <= pool->flowlet_ns;
}
static __always_inline __u64 mixed(__u64 hash, __u64 word)
{
	hash = (hash ^ word) * 0x9e3779b97f4a7c15ULL;
	return hash ^ hash >> 29;
}

/* One of the buckets that have not been tried, at random: flows to several addresses that each try all buckets in the same
 * order do not meet as often as those that choose at random. */
static __always_inline __u32 unseen(struct paths *paths, struct pool *pool)
{
	__u32 bucket = next_random(&pool->random), i;

	bpf_for(i, 0, BUCKETS)
	{
		if (!(paths->seen >> (bucket & (BUCKETS - 1)) & 1))
			break;
		bucket++;
	}
	bucket &= BUCKETS - 1;
	paths->seen |= 1U << bucket;
	return bucket;
}

static __always_inline __u32 routes_generation(struct __sk_buff *ctx)
{
	struct sk_buff *skb = bpf_cast_to_kern_ctx(ctx);
	struct net *net = skb->dev->nd_net.net;

	return ctx->protocol == bpf_htons(ETH_P_IP) ? net->ipv4.rt_genid.counter : net->ipv6.fib6_sernum.counter;
}

/* Sets the hash of a packet that came in, by which it leaves. */
GLOBAL int balance(struct __sk_buff *ctx, struct pool *pool, __u32 class)
{
	struct destination key = {};
	__u64 source[2] = {}, flow = 0, now = 0;
	struct flowlet *flowlet = (void *)0;
	struct paths *paths;
	__u32 slot = 0, bucket = 0, start, ports = 0, algorithm, generation;
	__u8 protocol = 0;

	if (!pool || class >= CLASSES)
		return 0;
	if (ctx->protocol == bpf_htons(ETH_P_IP)) {
		if (bpf_skb_load_bytes(ctx, 14 + 16, key.address, 4) || bpf_skb_load_bytes(ctx, 14 + 12, source, 4) ||
		    bpf_skb_load_bytes(ctx, 34, &ports, 4) || bpf_skb_load_bytes(ctx, 14 + 9, &protocol, 1))
			return 0;
	} else if (ctx->protocol == bpf_htons(ETH_P_IPV6)) {
		if (bpf_skb_load_bytes(ctx, 14 + 24, key.address, 16) || bpf_skb_load_bytes(ctx, 14 + 8, source, 16) ||
		    bpf_skb_load_bytes(ctx, 54, &ports, 4) || bpf_skb_load_bytes(ctx, 14 + 6, &protocol, 1))
			return 0;
	} else {
		return 0;
	}
	key.lab_owner = pool->lab << 16 | pool->number;
	paths = paths_to(&key, pool, &slot);
	if (!paths)
		return 0;
	algorithm = pool->balancing[class];
	if (algorithm == FLOWLET) {
		__u64 *address = (__u64 *)key.address;

		now = bpf_ktime_get_ns();
		flow = mixed(mixed(mixed(key.lab_owner, source[0]), source[1]), address[0]);
		if (protocol != PROTOCOL_UDP && protocol != PROTOCOL_TCP)
			ports = 0;
		flow = mixed(mixed(flow, address[1]), ports);
		flowlet = bpf_map_lookup_elem(&flowlets, &flow);
		if (flowlet && goes_on(flowlet, pool, now, &bucket)) {
			bpf_set_hash(ctx, HASH_OF(bucket, slot));
			return 0;
		}
	}
	generation = routes_generation(ctx);
	if (paths->generation != generation) {
		paths->generation = generation;
		paths->turn = paths->seen = 0;
	}
	start = paths->turn++;
	if (start < BUCKETS || !(start % EXPLORE) || !paths->number) {
		if (algorithm == SPRAY || algorithm == ADAPTIVE) {
			bucket = paths->tried & (BUCKETS - 1);
			paths->tried += STRIDE;
		} else {
			bucket = unseen(paths, pool);
		}
	} else if (algorithm == SPRAY) {
		bucket = paths->bucket[(start + paths->offset) % paths->number & (SPREAD - 1)];
	} else if (algorithm == ADAPTIVE) {
		bucket = least_loaded(paths, class, start + paths->offset);
	} else {
		bucket = paths->bucket[next_random(&pool->random) % paths->number & (SPREAD - 1)];
	}
	if (flowlet) {
		flowlet->bucket = bucket;
	} else if (algorithm == FLOWLET) {
		struct flowlet created = { .last = now, .bucket = bucket };

		bpf_map_update_elem(&flowlets, &flow, &created, 0);
	}
	bpf_set_hash(ctx, HASH_OF(bucket, slot));
	return 0;
}

/* A packet leaves by a port: so does its bucket. The next switch does not get the hash. */
GLOBAL int learn_path(struct __sk_buff *ctx, __u32 port)
{
	__u32 hash = ctx->hash, slot = hash >> 14 & (PATHS - 1), bucket = hash >> 27;
	struct paths *paths;
	int i, k;

	if ((hash & 0x3fff) != OWN_HASH)
		return 0;
	bpf_set_hash_invalid(ctx);
	paths = bpf_map_lookup_elem(&all_paths, &slot);
	if (!paths || paths->port[bucket & (BUCKETS - 1)] == port)
		return 0;
	paths->port[bucket & (BUCKETS - 1)] = port;
	paths->number = 0;
	bpf_for(i, 0, BUCKETS)
	{
		__u32 other = paths->port[i & (BUCKETS - 1)], known = !other;

		bpf_for(k, 0, SPREAD)
		{
			if (k >= paths->number)
				break;
			known |= paths->ports[k & (SPREAD - 1)] == other;
		}
		if (known || paths->number >= SPREAD)
			continue;
		paths->ports[paths->number & (SPREAD - 1)] = other;
		paths->bucket[paths->number & (SPREAD - 1)] = i;
		paths->number++;
	}
	return 0;
}
#endif
