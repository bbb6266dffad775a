/* Classes of packets, and RoCEv2's headers: what a NIC reads of them, and the CNP that it makes. */
#ifndef ROCE_H
#define ROCE_H
#include "pfc.h"
#include "crc32.h"

#define ETH_P_IP 0x0800
#define ETH_P_IPV6 0x86dd
#define ETH_P_ARP 0x0806
#define PROTOCOL_TCP 6
#define PROTOCOL_UDP 17
#define ROCE_PORT 4791
#define OP_READ_REQUEST 0x0c
#define OP_ACK 0x11
#define OP_ATOMIC_ACK 0x12
#define OP_CNP 0x81
#define OP_ECHO 0xc0 /* of those that are a manufacturer's own: the telemetry of a packet has come back */
#define ECN_CE 3
#define CNP_DSCP 48
#define BECN 0x40

struct roce {
	__u8 source[16], target[16]; /* IPv4 mapped into IPv6 */
	__u32 qpn;		     /* of the target */
	__u32 psn;
	__u16 source_port;
	__u8 opcode, ecn, version;
	__u8 asks;     /* for an acknowledgement */
	__u32 length;  /* that a READ asks for */
	__u8 syndrome; /* of an acknowledgement: its high bits are 0 if it is no refusal */
};

/* The class of a packet: by its tag's priority where the port trusts that, else by its DSCP. */
static __always_inline __u32 classify(struct __sk_buff *ctx, const struct port_config *config)
{
	__u8 ip[2];
	__u32 dscp = 0;

	if (config->trusts_pcp)
		return config->class_of_pcp[ctx->vlan_present ? ctx->vlan_tci >> 13 & 7 : 0] & (CLASSES - 1);
	if (ctx->protocol == bpf_htons(ETH_P_IP)) {
		if (!bpf_skb_load_bytes(ctx, 14, ip, 2))
			dscp = ip[1] >> 2;
	} else if (ctx->protocol == bpf_htons(ETH_P_IPV6)) {
		if (!bpf_skb_load_bytes(ctx, 14, ip, 2))
			dscp = (ip[0] << 2 & 0x3c) | ip[1] >> 6;
	}
	return config->class_of_dscp[dscp & 63] & (CLASSES - 1);
}

/* Whether it is a RoCEv2 packet; `found` has what it says then. */
static __always_inline int read_roce(struct __sk_buff *ctx, struct roce *found)
{
	__u8 ip[40], bth[21];
	__u32 offset;

	if (ctx->protocol == bpf_htons(ETH_P_IP)) {
		if (bpf_skb_load_bytes(ctx, 14, ip, 20) || ip[0] != 0x45 || ip[9] != PROTOCOL_UDP)
			return 0;
		__builtin_memset(found, 0, sizeof(*found));
		found->source[10] = found->source[11] = found->target[10] = found->target[11] = 0xff;
		__builtin_memcpy(found->source + 12, ip + 12, 4);
		__builtin_memcpy(found->target + 12, ip + 16, 4);
		found->ecn = ip[1] & 3;
		found->version = 4;
		offset = 34;
	} else if (ctx->protocol == bpf_htons(ETH_P_IPV6)) {
		if (bpf_skb_load_bytes(ctx, 14, ip, 40) || ip[6] != PROTOCOL_UDP)
			return 0;
		__builtin_memset(found, 0, sizeof(*found));
		__builtin_memcpy(found->source, ip + 8, 16);
		__builtin_memcpy(found->target, ip + 24, 16);
		found->ecn = ip[1] >> 4 & 3;
		found->version = 6;
		offset = 54;
	} else {
		return 0;
	}
	if (bpf_skb_load_bytes(ctx, offset, bth, sizeof(bth)))
		return 0;
	if ((bth[2] << 8 | bth[3]) != ROCE_PORT)
		return 0;
	found->source_port = bth[0] << 8 | bth[1];
	found->opcode = bth[8];
	found->qpn = bth[13] << 16 | bth[14] << 8 | bth[15];
	found->asks = bth[16] >> 7;
	found->psn = bth[17] << 16 | bth[18] << 8 | bth[19];
	found->syndrome = bth[20];
	if (found->opcode == OP_READ_REQUEST && !bpf_skb_load_bytes(ctx, offset + 32, bth, 4))
		found->length = bth[0] << 24 | bth[1] << 16 | bth[2] << 8 | bth[3];
	return 1;
}

/* The peer of each connected queue pair, by the address and the number of this side's: a CNP names its number, and packets
 * that a queue pair sends show only that. And the other way round. */
struct peer {
	__u32 qpn, psn, mtu, sorted; /* its first PSN; bytes; whether a NIC has put its requests in order */
	__u64 serial;		     /* of the connection */
};
struct own_qp {
	__u8 address[16];
	__u32 qpn, unused;
};
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 65536);
	__type(key, struct own_qp);
	__type(value, struct peer);
} peers SEC(".maps");
struct connection {
	__u8 address[16], other[16];
	__u32 other_qpn, unused;
};
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 65536);
	__type(key, struct connection);
	__type(value, __u32);
} own_numbers SEC(".maps");
SHARED(connections, struct counter);

/* The port and the class of each queue pair that is ready to receive. */
struct placed {
	__u32 port, class;
};
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 65536);
	__type(key, __u64);
	__type(value, struct placed);
} places SEC(".maps");

#define IB_QP_AV (1 << 7)
#define IB_QP_TIMEOUT (1 << 9)
#define IB_QP_DEST_QPN (1 << 20)

static __always_inline void place(struct rxe_qp *qp, struct ib_qp_attr *attr)
{
	struct placed place = { .port = BPF_CORE_READ(attr, ah_attr.grh.sgid_attr, ndev, group) };
	struct port_config *config = config_of(place.port);
	__u64 key = (__u64)qp;

	if (!place.port || !config || config->kind != NIC)
		return;
	place.class = config->class_of_dscp[BPF_CORE_READ(attr, ah_attr.grh.traffic_class) >> 2 & 63] & (CLASSES - 1);
	bpf_map_update_elem(&places, &key, &place, 0);
}
static __always_inline void note_timeout(struct rxe_qp *qp, __u64 timeout)
{
	__u64 key = (__u64)qp;
	struct placed *place = bpf_map_lookup_elem(&places, &key);
	struct port_config *config;
	struct port_state *state;

	if (!place || !timeout || timeout > 31)
		return;
	config = config_of(place->port);
	state = state_of(place->port);
	if (!config || !state || !(config->honours_pause >> place->class & 1))
		return;
	if ((__u64)TIMEOUT_UNIT_NS << timeout >= (__u64)MOST_QUANTA * QUANTUM_BITS / 8 * config->ns_per_kib / 1024)
		return;
	if (state->least_timeout && timeout >= state->least_timeout)
		return;
	state->least_timeout = timeout;
	state->timeout_ns_per_kib = config->ns_per_kib;
}

SEC("fentry/rxe_qp_from_attr")
int BPF_PROG(qp_connects, struct rxe_qp *qp, struct ib_qp_attr *attr, int mask)
{
	const struct ib_gid_attr *gid;
	struct connection connection = {};
	struct own_qp key = {};
	struct peer peer = {};
	struct counter *number;
	__u32 zero = 0;

	if (mask & IB_QP_TIMEOUT)
		note_timeout(qp, BPF_CORE_READ(attr, timeout));
	if (!(mask & IB_QP_DEST_QPN) || !(mask & IB_QP_AV))
		return 0;
	place(qp, attr);
	gid = BPF_CORE_READ(attr, ah_attr.grh.sgid_attr);
	bpf_probe_read_kernel(key.address, 16, (void *)gid + bpf_core_field_offset(struct ib_gid_attr, gid));
	key.qpn = BPF_CORE_READ(qp, ibqp.qp_num);
	peer.qpn = BPF_CORE_READ(attr, dest_qp_num);
	peer.psn = BPF_CORE_READ(attr, rq_psn);
	peer.mtu = 128 << BPF_CORE_READ(attr, path_mtu);
	number = bpf_map_lookup_elem(&connections, &zero);
	if (number)
		peer.serial = __sync_fetch_and_add(&number->value, 1) + 1;
	bpf_map_update_elem(&peers, &key, &peer, 0);
	__builtin_memcpy(connection.address, key.address, 16);
	bpf_probe_read_kernel(connection.other, 16, (void *)attr + bpf_core_field_offset(attr->ah_attr.grh.dgid));
	connection.other_qpn = peer.qpn;
	bpf_map_update_elem(&own_numbers, &connection, &key.qpn, 0);
	return 0;
}
static __always_inline __u32 *own_qpn(const struct roce *sent)
{
	struct connection key = { .other_qpn = sent->qpn };

	__builtin_memcpy(key.address, sent->source, 16);
	__builtin_memcpy(key.other, sent->target, 16);
	return bpf_map_lookup_elem(&own_numbers, &key);
}
static __always_inline struct peer *peer_of(const __u8 *address, __u32 qpn)
{
	struct own_qp key = { .qpn = qpn };

	__builtin_memcpy(key.address, address, 16);
	return bpf_map_lookup_elem(&peers, &key);
}

/* A CNP is 16 bytes of zeros after the base transport header; its ICRC is over the IP header and what follows, with the
 * fields that change on the way as ones (InfiniBand, annex A17.9.2). */
#define CNP_PAYLOAD (12 + 16)
#define CNP4_LENGTH (14 + 20 + 8 + CNP_PAYLOAD + 4)
#define CNP6_LENGTH (14 + 40 + 8 + CNP_PAYLOAD + 4)

static __always_inline void cnp_end(__u8 *udp, const struct roce *data, __u32 qpn, int echo)
{
	__u16 source_port = data->source_port;

	udp[0] = source_port >> 8;
	udp[1] = source_port & 0xff;
	udp[2] = ROCE_PORT >> 8;
	udp[3] = ROCE_PORT & 0xff;
	udp[5] = 8 + CNP_PAYLOAD + 4;
	udp[6] = udp[7] = 0xff; /* as the ICRC takes the checksum; it is 0 in the frame */
	udp[8] = echo ? OP_ECHO : OP_CNP;
	udp[10] = udp[11] = 0xff;
	udp[12] = 0xff; /* and FECN, BECN, reserved bits */
	udp[13] = qpn >> 16;
	udp[14] = qpn >> 8;
	udp[15] = qpn;
	if (echo) {
		udp[17] = data->psn >> 16;
		udp[18] = data->psn >> 8;
		udp[19] = data->psn;
	}
}
static __always_inline void cnp_seal(__u8 *frame, __u32 udp, __u32 length, int echo)
{
	__u32 i, crc = CRC32_OF_8_ONES;

	bpf_for(i, 14, length - 4)
	{
		if (i >= length - 4)
			break;
		crc = crc32_table[(crc ^ frame[i]) & 0xff] ^ crc >> 8;
	}
	crc = ~crc;
	__builtin_memcpy(frame + length - 4, &crc, 4);
	frame[udp + 6] = frame[udp + 7] = 0;
	frame[udp + 12] = echo ? 0 : BECN;
}
GLOBAL int make_cnp4(struct __sk_buff *ctx, struct roce *data, __u32 qpn, int echo)
{
	__u8 frame[CNP4_LENGTH] = {}, old[22];
	__u32 i, sum = 0;

	if (!data || bpf_skb_load_bytes(ctx, 0, old, sizeof(old)))
		return SHOT;
	__builtin_memcpy(frame, old + 6, 6);
	__builtin_memcpy(frame + 6, old, 6);
	frame[12] = ETH_P_IP >> 8;
	frame[14] = 0x45;
	frame[15] = frame[22] = frame[24] = frame[25] = 0xff; /* service, time to live, checksum: see below */
	frame[17] = CNP4_LENGTH - 14;
	frame[18] = old[18];
	frame[19] = old[19];
	frame[20] = 0x40; /* not to be fragmented */
	frame[23] = PROTOCOL_UDP;
	__builtin_memcpy(frame + 26, data->target + 12, 4);
	__builtin_memcpy(frame + 30, data->source + 12, 4);
	cnp_end(frame + 34, data, qpn, echo);
	cnp_seal(frame, 34, CNP4_LENGTH, echo);
	frame[15] = CNP_DSCP << 2;
	frame[22] = 64;
	frame[24] = frame[25] = 0;
	for (i = 14; i < 34; i += 2)
		sum += frame[i] << 8 | frame[i + 1];
	sum = (sum & 0xffff) + (sum >> 16);
	sum = ~((sum & 0xffff) + (sum >> 16));
	frame[24] = sum >> 8;
	frame[25] = sum;
	if (bpf_skb_change_tail(ctx, CNP4_LENGTH, 0))
		return SHOT;
	return bpf_skb_store_bytes(ctx, 0, frame, CNP4_LENGTH, BPF_F_INVALIDATE_HASH) ? SHOT : NEXT;
}
GLOBAL int make_cnp6(struct __sk_buff *ctx, struct roce *data, __u32 qpn, int echo)
{
	__u8 frame[CNP6_LENGTH] = {}, old[12];

	if (!data || bpf_skb_load_bytes(ctx, 0, old, sizeof(old)))
		return SHOT;
	__builtin_memcpy(frame, old + 6, 6);
	__builtin_memcpy(frame + 6, old, 6);
	frame[12] = ETH_P_IPV6 >> 8;
	frame[13] = ETH_P_IPV6 & 0xff;
	frame[14] = 0x6f; /* class and flow label, hop limit: see below */
	frame[15] = frame[16] = frame[17] = frame[21] = 0xff;
	frame[19] = 8 + CNP_PAYLOAD + 4;
	frame[20] = PROTOCOL_UDP;
	__builtin_memcpy(frame + 22, data->target, 16);
	__builtin_memcpy(frame + 38, data->source, 16);
	cnp_end(frame + 54, data, qpn, echo);
	cnp_seal(frame, 54, CNP6_LENGTH, echo);
	frame[14] = 0x60 | CNP_DSCP >> 2;
	frame[15] = CNP_DSCP << 6 & 0xff;
	frame[16] = frame[17] = 0;
	frame[21] = 64;
	if (bpf_skb_change_tail(ctx, CNP6_LENGTH, 0))
		return SHOT;
	return bpf_skb_store_bytes(ctx, 0, frame, CNP6_LENGTH, BPF_F_INVALIDATE_HASH) ? SHOT : NEXT;
}
/* Turns a data packet into the CNP that answers it, or into the echo of its telemetry: a frame of the same form. */
GLOBAL int make_cnp(struct __sk_buff *ctx, int echo)
{
	struct roce data = {};
	struct peer *peer;

	if (!read_roce(ctx, &data))
		return SHOT;
	peer = peer_of(data.target, data.qpn);
	if (!peer)
		return SHOT;
	return data.version == 4 ? make_cnp4(ctx, &data, peer->qpn, echo) :
				   make_cnp6(ctx, &data, peer->qpn, echo);
}
#endif
