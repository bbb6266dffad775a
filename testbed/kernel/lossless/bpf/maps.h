/* The maps, and what finds a port's part in them. The group of a device and the handle of its qdisc are its port number;
 * there are as many as `layout.h` says, from 1 on. */
#ifndef MAPS_H
#define MAPS_H
#include "layout.h"

#define SHARED(name, kind)                                                                                             \
	struct {                                                                                                       \
		__uint(type, BPF_MAP_TYPE_ARRAY);                                                                      \
		__uint(map_flags, BPF_F_MMAPABLE);                                                                     \
		__uint(max_entries, 1);                                                                                \
		__type(key, __u32);                                                                                    \
		__type(value, kind);                                                                                   \
	} name SEC(".maps")
#define LISTS(name)                                                                                                    \
	struct {                                                                                                       \
		__uint(type, BPF_MAP_TYPE_ARRAY);                                                                      \
		__uint(max_entries, 1);                                                                                \
		__type(key, __u32);                                                                                    \
		__type(value, struct list);                                                                            \
	} name SEC(".maps")

struct packet {
	struct bpf_list_node node;
	struct sk_buff __kptr *skb;
	__u64 due; /* when the other end has it */
	__u32 length, tag;
	__u64 journey; /* that is noted: the number of its queue pair, counted from 1, and its PSN; see JOURNEY */
	__u32 on_link; /* bytes that it takes on the link */
};
#define JOURNEY(flow, psn) ((__u64)(flow) << 32 | (psn))
struct list {
	struct bpf_spin_lock lock;
	struct bpf_list_head head __contains(packet, node);
};
struct lock {
	struct bpf_spin_lock lock;
};

/* The lists of a port: a queue a class, what is on the wire, and XON frames that are ready, of each class. */
#define WIRE CLASSES
#define STOCK (CLASSES + 1)
#define PORT_LISTS (2 * CLASSES + 1)

SHARED(configs, struct port_config);
SHARED(states, struct port_state);
SHARED(pools, struct pool);
SHARED(flows, struct flow);
SHARED(parameters, struct control);
SHARED(episodes, struct episode);
SHARED(episodes_written, struct counter);
LISTS(port_lists);
LISTS(flow_lists);
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct lock);
} pool_locks SEC(".maps");

static __always_inline struct port_config *config_of(__u32 port)
{
	return bpf_map_lookup_elem(&configs, &port);
}
static __always_inline struct port_state *state_of(__u32 port)
{
	return bpf_map_lookup_elem(&states, &port);
}
static __always_inline struct pool *pool_of(__u32 owner)
{
	return bpf_map_lookup_elem(&pools, &owner);
}
static __always_inline struct list *list_of(__u32 port, __u32 number)
{
	__u32 key = port * PORT_LISTS + number;

	return bpf_map_lookup_elem(&port_lists, &key);
}
static __always_inline struct flow *flow_of(__u32 port, __u32 number)
{
	__u32 key = port * FLOWS + number;

	return bpf_map_lookup_elem(&flows, &key);
}
static __always_inline struct list *flow_list_of(__u32 port, __u32 number)
{
	__u32 key = port * FLOWS + number;

	return bpf_map_lookup_elem(&flow_lists, &key);
}
static __always_inline struct control *control_of(__u32 port)
{
	return bpf_map_lookup_elem(&parameters, &port);
}

static __always_inline void push_back(struct list *list, struct packet *packet)
{
	bpf_spin_lock(&list->lock);
	bpf_list_push_back_impl(&list->head, &packet->node, (void *)0, 0);
	bpf_spin_unlock(&list->lock);
}
static __always_inline void push_front(struct list *list, struct packet *packet)
{
	bpf_spin_lock(&list->lock);
	bpf_list_push_front_impl(&list->head, &packet->node, (void *)0, 0);
	bpf_spin_unlock(&list->lock);
}
static __always_inline struct packet *pop_front(struct list *list)
{
	struct bpf_list_node *node;

	bpf_spin_lock(&list->lock);
	node = bpf_list_pop_front(&list->head);
	bpf_spin_unlock(&list->lock);
	return node ? container_of(node, struct packet, node) : (void *)0;
}
static __always_inline void discard(struct packet *packet)
{
	bpf_obj_drop_impl(packet, (void *)0); /* its skb goes with it */
}

/* What `skb->tc_index` says of a packet: the port it came in by, and its class; CHARGED if its group has it already. Numbers from MADE on are of packets of our own, with the class that they are about. It survives the bridge, clones of a flood, SVIs, IP forwarding and trunks. */
#define TAG(port, class) ((port) << 3 | (class))
#define PORT_OF(tag) ((tag) >> 3)
#define CLASS_OF(tag) ((tag)&7)
#define CHARGED 4096
#define MADE 8180
#define MAKE_XOFF 8180 /* becomes a pause frame of the port it is sent by */
#define MAKE_STOCK 8181 /* becomes its XON frame, and is kept */
#define MAKE_WAKE 8182	/* is dropped; the qdisc has looked at its queues then */
#define MAKE_CNP 8183	/* becomes the CNP that answers it */
#define MAKE_ECHO 8185	/* becomes the echo that brings its telemetry back */
#define MADE_XOFF 8184	/* is an XOFF frame */

static __always_inline void send_made(struct __sk_buff *ctx, __u32 ifindex, __u32 what, __u32 class)
{
	__u32 tag = ctx->tc_index;

	ctx->tc_index = TAG(what, class);
	bpf_clone_redirect(ctx, ifindex, 0);
	ctx->tc_index = tag;
}
#endif
