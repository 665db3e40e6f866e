/* SPDX-License-Identifier: Apache-2.0 */
/*
 * /proc/PID/net: the one interface that every sandbox has, and tables that are empty: no packets are
 * processed here, and the sandbox's sockets aren't listed yet. Constant texts.
 */
#include "sentry/fs/proc/proc_internal.h"
#include <sys/stat.h>

#define TEXT_ROW(label, text) {.name = (label), .mode = S_IFREG | 0444, .content = (text)}

#define INET_HEADER                                                                                \
    "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout "  \
    "inode"
#define INET6_HEADER                                                                               \
    "  sl  local_address                         remote_address                        st "        \
    "tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode"
#define DATAGRAM_TAIL " ref pointer drops"

/* clang-format off: as the kernel prints them */
static const struct synth_row rows[] = {
    TEXT_ROW("arp", "IP address       HW type     Flags       HW address            Mask     Device\n"),
    TEXT_ROW("dev",
             "Inter-|   Receive                                                |  Transmit\n"
             " face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs "
             "drop fifo colls carrier compressed\n"
             "    lo:       0       0    0    0    0     0          0         0        0       0    0    "
             "0    0     0       0          0\n"),
    TEXT_ROW("if_inet6", "00000000000000000000000000000001 01 80 10 80       lo\n"),
    TEXT_ROW("ipv6_route", "00000000000000000000000000000001 80 00000000000000000000000000000000 00 "
                           "00000000000000000000000000000000 00000000 00000002 00000000 80200001       "
                           "lo\n"),
    TEXT_ROW("netlink", "sk               Eth Pid        Groups   Rmem     Wmem     Dump  Locks    Drops    "
                        "Inode\n"),
    TEXT_ROW("packet", "sk               RefCnt Type Proto  Iface R Rmem   User   Inode\n"),
    TEXT_ROW("protocols", "protocol  size sockets  memory press maxhdr  slab module     cl co di ac io in de "
                          "sh ss gs se re sp bi br ha uh gp em\n"),
    TEXT_ROW("psched", "000003e8 00000040 000f4240 3b9aca00\n"),
    TEXT_ROW("ptype", "Type Device      Function\n"),
    TEXT_ROW("raw", INET_HEADER DATAGRAM_TAIL "\n"),
    TEXT_ROW("raw6", INET6_HEADER DATAGRAM_TAIL "\n"),
    TEXT_ROW("route", "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n"),
    TEXT_ROW("snmp",
             "Ip: Forwarding DefaultTTL InReceives InHdrErrors InAddrErrors ForwDatagrams InUnknownProtos "
             "InDiscards InDelivers OutRequests OutDiscards OutNoRoutes ReasmTimeout ReasmReqds ReasmOKs "
             "ReasmFails FragOKs FragFails FragCreates\n"
             "Ip: 2 64 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n"
             "Tcp: RtoAlgorithm RtoMin RtoMax MaxConn ActiveOpens PassiveOpens AttemptFails EstabResets "
             "CurrEstab InSegs OutSegs RetransSegs InErrs OutRsts InCsumErrors\n"
             "Tcp: 1 200 120000 -1 0 0 0 0 0 0 0 0 0 0 0\n"
             "Udp: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors SndbufErrors InCsumErrors "
             "IgnoredMulti MemErrors\n"
             "Udp: 0 0 0 0 0 0 0 0 0\n"),
    TEXT_ROW("sockstat", "sockets: used 0\nTCP: inuse 0 orphan 0 tw 0 alloc 0 mem 0\nUDP: inuse 0 mem 0\n"
                         "UDPLITE: inuse 0\nRAW: inuse 0\nFRAG: inuse 0 memory 0\n"),
    TEXT_ROW("sockstat6", "TCP6: inuse 0\nUDP6: inuse 0\nUDPLITE6: inuse 0\nRAW6: inuse 0\nFRAG6: inuse 0 "
                          "memory 0\n"),
    TEXT_ROW("tcp", INET_HEADER "\n"),
    TEXT_ROW("tcp6", INET6_HEADER "\n"),
    TEXT_ROW("udp", INET_HEADER DATAGRAM_TAIL "\n"),
    TEXT_ROW("udp6", INET6_HEADER DATAGRAM_TAIL "\n"),
    TEXT_ROW("unix", "Num       RefCount Protocol Flags    Type St Inode Path\n"),
};
/* clang-format on */
const struct synth_rows proc_net_rows = SYNTH_ROWS(rows);
