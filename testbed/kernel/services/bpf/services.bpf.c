// SPDX-License-Identifier: GPL-2.0
/* Services of Kubernetes at the socket, as Cilium's replacement of kube-proxy has them (bpf/bpf_sock.c there): a
 * connection to a service's address becomes one to an endpoint before a packet is made, so nothing has to be translated
 * on the way, and the answers come from where they seem to come. Only programs in namespaces of the map `namespaces`
 * are meant. */
typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef int __s32;
typedef long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;

enum { BPF_MAP_TYPE_HASH = 1, BPF_MAP_TYPE_LRU_HASH = 9 };

struct bpf_sock;
struct bpf_sock_addr {
	__u32 user_family, user_ip4, user_ip6[4], user_port, family, type, protocol, msg_src_ip4, msg_src_ip6[4];
	union {
		struct bpf_sock *sk;
		__u64 : 64;
	} __attribute__((aligned(8)));
};

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_endian.h>
#include "layout.h"

#define PASS 1
#define ECONNREFUSED 111

char LICENSE[] SEC("license") = "GPL";

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, SERVICES);
	__type(key, __u64);
	__type(value, __u64);
} namespaces SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, SERVICES);
	__type(key, struct place);
	__type(value, struct service);
} services SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__type(key, struct member);
	__type(value, struct place);
} endpoints SEC(".maps");

/* What a socket asked for, so that it sees it as its peer. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, FLOWS);
	__type(key, struct flow);
	__type(value, struct place);
} flows SEC(".maps");

static __u64 *of_lab(struct bpf_sock_addr *ctx)
{
	__u64 cookie = bpf_get_netns_cookie(ctx);

	return bpf_map_lookup_elem(&namespaces, &cookie);
}

static int refuse(void)
{
	bpf_set_retval(-ECONNREFUSED);
	return 0;
}

/* Send a socket to the next endpoint of the service that it asks for. */
static int send(struct bpf_sock_addr *ctx)
{
	struct place asked = { .address = ctx->user_ip4, .port = (__u16)ctx->user_port, .protocol = (__u8)ctx->protocol };
	struct member member = {};
	struct flow flow = {};
	struct service *service;
	struct place *to;

	if (!of_lab(ctx))
		return PASS;
	service = bpf_map_lookup_elem(&services, &asked);
	if (!service)
		return PASS;
	if (!service->endpoints) /* kube-proxy rejects it, too */
		return refuse();
	member.number = service->number;
	member.place = __sync_fetch_and_add(&service->sent, 1) % service->endpoints;
	to = bpf_map_lookup_elem(&endpoints, &member);
	if (!to)
		return refuse();
	flow.socket = bpf_get_socket_cookie(ctx);
	flow.address = to->address;
	flow.port = to->port;
	bpf_map_update_elem(&flows, &flow, &asked, 0);
	ctx->user_ip4 = to->address;
	ctx->user_port = to->port;
	return PASS;
}

/* Show a socket the service as its peer, or as the sender of a datagram. */
static int receive(struct bpf_sock_addr *ctx)
{
	struct flow flow = { .socket = bpf_get_socket_cookie(ctx), .address = ctx->user_ip4, .port = ctx->user_port };
	struct place *asked = bpf_map_lookup_elem(&flows, &flow);

	if (asked) {
		ctx->user_ip4 = asked->address;
		ctx->user_port = asked->port;
	}
	return PASS;
}

SEC("cgroup/connect4")
int service_connect(struct bpf_sock_addr *ctx)
{
	return send(ctx);
}

SEC("cgroup/sendmsg4")
int service_sendmsg(struct bpf_sock_addr *ctx)
{
	return send(ctx);
}

SEC("cgroup/recvmsg4")
int service_recvmsg(struct bpf_sock_addr *ctx)
{
	return receive(ctx);
}

SEC("cgroup/getpeername4")
int service_getpeername(struct bpf_sock_addr *ctx)
{
	return receive(ctx);
}
