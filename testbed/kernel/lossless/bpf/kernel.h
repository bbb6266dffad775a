/* The few types and functions of the kernel that the programs touch. CO-RE finds the fields' places at load time, so there
 * is no vmlinux.h. */
#ifndef KERNEL_H
#define KERNEL_H
#define bool _Bool
typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef signed char __s8;
typedef short __s16;
typedef int __s32;
typedef long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;
typedef __u16 __sum16;
typedef __u8 u8;
typedef __u16 u16;
typedef __u32 u32;
typedef __u64 u64;

enum { BPF_MAP_TYPE_HASH = 1, BPF_MAP_TYPE_ARRAY = 2, BPF_MAP_TYPE_LRU_HASH = 9, BPF_F_MMAPABLE = 1 << 10, BPF_F_INVALIDATE_HASH = 2 };

struct bpf_spin_lock {
	__u32 val;
};
struct bpf_list_head {
	__u64 opaque[2];
} __attribute__((aligned(8)));
struct bpf_list_node {
	__u64 opaque[3];
} __attribute__((aligned(8)));
struct bpf_iter_num {
	__u64 opaque[1];
} __attribute__((aligned(8)));
struct __sk_buff {
	__u32 len, pkt_type, mark, queue_mapping, protocol, vlan_present, vlan_tci, vlan_proto, priority;
	__u32 ingress_ifindex, ifindex, tc_index;
	__u32 cb[5];
	__u32 hash, tc_classid;
	__u32 data, data_end, napi_id, family, remote_ip4, local_ip4, remote_ip6[4], local_ip6[4], remote_port, local_port;
	__u32 data_meta;
	__u64 flow_keys, tstamp;
};
struct bpf_fib_lookup {
	__u8 family, l4_protocol;
	__be16 sport, dport, tot_len;
	__u32 ifindex, tos; /* flowinfo of IPv6 */
	__u32 source[4], target[4];
	__u16 vlan_proto, vlan_tci;
	__u8 smac[6], dmac[6];
};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
typedef struct {
	int counter;
} atomic_t;
struct netns_ipv4 {
	atomic_t rt_genid; /* changes with each route, next hop and carrier, as cached routes end then */
};
struct netns_ipv6 {
	atomic_t fib6_sernum; /* so does this */
};
struct net {
	struct netns_ipv4 ipv4;
	struct netns_ipv6 ipv6;
};
typedef struct {
	struct net *net;
} possible_net_t;
struct net_device {
	unsigned int group;
	possible_net_t nd_net;
};
struct sk_buff {
	struct net_device *dev;
	unsigned int len;
	__u32 vlan_all;
	__u16 tc_index, mac_header;
	unsigned char *head, *data;
	char cb[48];
};
struct sk_buff_head {
	struct sk_buff *next;
};
struct neighbour {
	struct sk_buff_head arp_queue;
};
struct bpf_sk_buff_ptr {
	struct sk_buff *skb;
};
struct qdisc_skb_head {
	__u32 qlen;
};
struct gnet_stats_queue {
	__u32 qlen, backlog, drops;
};
struct Qdisc {
	__u32 handle;
	struct qdisc_skb_head q;
	struct gnet_stats_queue qstats;
};
struct nlattr;
struct netlink_ext_ack;
struct Qdisc_ops {
	char id[16];
	int (*enqueue)(struct sk_buff *, struct Qdisc *, struct sk_buff **);
	struct sk_buff *(*dequeue)(struct Qdisc *);
	int (*init)(struct Qdisc *, struct nlattr *, struct netlink_ext_ack *);
	void (*reset)(struct Qdisc *);
	void (*destroy)(struct Qdisc *);
};
union ib_gid {
	__u8 raw[16];
};
struct ib_gid_attr {
	union ib_gid gid;
	struct net_device *ndev;
};
struct ib_global_route {
	const struct ib_gid_attr *sgid_attr;
	union ib_gid dgid;
	__u8 traffic_class;
};
struct rdma_ah_attr {
	struct ib_global_route grh;
};
enum ib_mtu { IB_MTU_256 = 1 };
struct ib_qp_attr {
	enum ib_mtu path_mtu;
	__u32 rq_psn, dest_qp_num;
	struct rdma_ah_attr ah_attr;
	__u8 timeout;
};
struct ib_qp {
	__u32 qp_num;
};
struct rxe_qp {
	struct ib_qp ibqp;
};
struct pt_regs;
#pragma clang attribute pop

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_tracing.h>

/* What a program of tc wrote into a packet's cb. */
struct qdisc_cb {
	__u32 length, unused, cb[5];
};
struct bpf_rb_root {
	__u64 opaque[2];
} __attribute__((aligned(8)));
struct bpf_rb_node {
	__u64 opaque[4];
} __attribute__((aligned(8)));
extern int bpf_rbtree_add_impl(struct bpf_rb_root *root, struct bpf_rb_node *node,
			       bool(less)(struct bpf_rb_node *a, const struct bpf_rb_node *b), void *meta,
			       __u64 off) __ksym;
extern struct bpf_rb_node *bpf_rbtree_first(struct bpf_rb_root *root) __ksym;
extern struct bpf_rb_node *bpf_rbtree_remove(struct bpf_rb_root *root, struct bpf_rb_node *node) __ksym;

#define __contains(name, node) __attribute__((btf_decl_tag("contains:" #name ":" #node)))
#ifndef __kptr
#define __kptr __attribute__((btf_type_tag("kptr")))
#endif
#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))

extern void *bpf_obj_new_impl(__u64 id, void *meta) __ksym;
extern void bpf_obj_drop_impl(void *object, void *meta) __ksym;
extern int bpf_list_push_back_impl(struct bpf_list_head *h, struct bpf_list_node *n, void *meta, __u64 offset) __ksym;
extern int bpf_list_push_front_impl(struct bpf_list_head *h, struct bpf_list_node *n, void *meta, __u64 offset) __ksym;
extern struct bpf_list_node *bpf_list_pop_front(struct bpf_list_head *h) __ksym;
extern void bpf_qdisc_skb_drop(struct sk_buff *skb, struct bpf_sk_buff_ptr *to_free) __ksym;
extern void bpf_qdisc_watchdog_schedule(struct Qdisc *sch, __u64 expire, __u64 delta_ns) __ksym;
extern void bpf_qdisc_bstats_update(struct Qdisc *sch, const struct sk_buff *skb) __ksym;
extern void *bpf_cast_to_kern_ctx(void *) __ksym;
extern int bpf_iter_num_new(struct bpf_iter_num *it, int start, int end) __ksym;
extern int *bpf_iter_num_next(struct bpf_iter_num *it) __ksym;
extern void bpf_iter_num_destroy(struct bpf_iter_num *it) __ksym;
/* As libbpf's, of which Debian 12 has an older one. Naming the function has clang describe it in BTF. */
#define bpf_for(i, start, end)                                                                                         \
	for (struct bpf_iter_num ___it __attribute__((aligned(8), cleanup(bpf_iter_num_destroy))),                     \
	     *___p __attribute__((unused)) =                                                                           \
		     (bpf_iter_num_new(&___it, (start), (end)), (void)bpf_iter_num_destroy, (void *)0);                \
	     ({                                                                                                        \
		     int *___t = bpf_iter_num_next(&___it);                                                            \
		     (___t ? ((i) = *___t, 1) : ((i) = (start), 0));                                                   \
	     });)

/* A function that the verifier looks at once, whoever calls it: paths do not multiply. Its pointers may be null. */
#define GLOBAL __attribute__((noinline))

/* What a program of the tcx hooks returns. NEXT, not OK: OK has the kernel overwrite `tc_index`. */
#define NEXT -1
#define SHOT 2
#define STOLEN 4
#define NET_XMIT_SUCCESS 0
#define NET_XMIT_DROP 1
#endif
