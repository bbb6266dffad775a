/* The maps of the programs for services, which Python fills. Addresses and ports are in network order. */
#define MOST_ENDPOINTS 256
#define SERVICES 4096
#define FLOWS 16384

/* An address and a port of a protocol. */
struct place {
	__u32 address;
	__u16 port;
	__u8 protocol;
	__u8 unused;
};

/* A port of a service: how many endpoints it has, and how many connections and datagrams it has sent to them. */
struct service {
	__u32 number;
	__u32 endpoints;
	__u64 sent;
};

/* One of its endpoints, by its place among them. */
struct member {
	__u32 number;
	__u32 place;
};

/* A socket, and the endpoint that it speaks to. */
struct flow {
	__u64 socket;
	__u32 address;
	__u32 port;
};
