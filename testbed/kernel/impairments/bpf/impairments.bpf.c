// SPDX-License-Identifier: GPL-2.0
/* A bad cable, which no command shows: it loses packets of one direction, or damages them, and then the MAC at its other
 * end drops them for their checksum (FCS). The sender does not notice either. */
typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef int __s32;
typedef long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;

enum { BPF_MAP_TYPE_HASH = 1 };

struct __sk_buff {
	__u32 len, pkt_type, mark, queue_mapping, protocol, vlan_present, vlan_tci, vlan_proto, priority;
	__u32 ingress_ifindex, ifindex, tc_index;
};

/* CO-RE finds the fields' places at load time. */
#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct net {
	__u64 net_cookie;
};
typedef struct {
	struct net *net;
} possible_net_t;
struct net_device {
	possible_net_t nd_net;
};
struct sk_buff {
	struct net_device *dev;
};
#pragma clang attribute pop

#include <bpf/bpf_helpers.h>
#include "layout.h"

#define NEXT -1
#define NOWHERE 0x7fffffff

extern void *bpf_cast_to_kern_ctx(void *) __ksym;

char LICENSE[] SEC("license") = "GPL";

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, ENDS);
	__type(key, struct place);
	__type(value, struct impairment);
} ends SEC(".maps");

/* Frames that arrived damaged, by the port with `way` 0. Nodes can read it: all ports are in it. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, ENDS);
	__type(key, struct place);
	__type(value, __u64);
} errors SEC(".maps");

static int happens(__u32 share)
{
	return share && bpf_get_prandom_u32() <= share;
}

static int loses(struct impairment *one)
{
	int all = one->bad;

	if (one->into && happens(all ? one->out : one->into))
		one->bad = !all;
	return all || happens(one->loss);
}

static void count(struct impairment *one)
{
	struct place port = { .net = one->net, .ifindex = one->ifindex };
	__u64 *counter = bpf_map_lookup_elem(&errors, &port);

	if (counter)
		++*counter;
}

static int pass(struct __sk_buff *skb, __u32 way)
{
	/* bpf_get_netns_cookie means the packet's socket, which a forwarded one does not have */
	struct sk_buff *kernels = bpf_cast_to_kern_ctx(skb);
	struct place place = { .net = kernels->dev->nd_net.net->net_cookie, .ifindex = skb->ifindex, .way = way };
	struct impairment *one = bpf_map_lookup_elem(&ends, &place);

	if (!one)
		return NEXT;
	if (!loses(one)) {
		if (!happens(one->corrupt))
			return NEXT;
		count(one);
	}
	return bpf_redirect(NOWHERE, 0); /* a verdict of the drop would be an error of who sends */
}

SEC("tcx/egress")
int goes_out(struct __sk_buff *skb)
{
	return pass(skb, EGRESS);
}

SEC("tcx/ingress")
int comes_in(struct __sk_buff *skb)
{
	return pass(skb, INGRESS);
}
