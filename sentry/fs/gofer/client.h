/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sentry's side of the gofer protocol (gofer/protocol.h): one client for each gofer. Any fiber, or a
 * host thread without one. The gofer is less trusted than the sentry: replies are copied out of shared
 * memory once, decoded with bounds, and whatever breaks the protocol makes the client dead for good.
 *
 *     AUTO_RPC rpc = {0};
 *     gofer_rpc_begin(client, &rpc, may_block);        takes a slot; may park
 *     … build paths in rpc.path[0], rpc.path[1] …
 *     r = gofer_rpc_walk(&rpc, &request, &reply);      reply's strings and bytes live until the end
 */
#pragma once

#include "base/compiler.h"
#include "gofer/protocol.h"
#include <stdbool.h>
#include <stdint.h>

struct gofer_client;

enum gofer_transport {
    GOFER_BY_NOTIFICATION, /* the sentry's filter notifies GOFER_CALL_NR, and the gofer has the listener */
    GOFER_BY_CHANNEL,      /* kernels without notifications; tests */
    GOFER_BY_FUNCTION,     /* fuzzing: a function of this process answers */
};

/* Receives the gofer's HELLO over `channel` (becomes the client's, also on failure), checks and maps the
 * ring. No call is made. Before lockdown. 0 or -errno. `dead(arg)` runs once, on whatever fiber notices, when the gofer is
 * gone or broke the protocol; it may not sleep; NULL = nobody cares. */
MUST_CHECK int gofer_client_new(int channel, enum gofer_transport transport, void (*dead)(void *arg),
                                void *arg, struct gofer_client **ret);
/* Fuzzing: `answer` looks at the slot's shared memory and returns the result as a gofer would, with a
 * descriptor in *ret_hfd if it says so. */
typedef int64_t (*gofer_answer_fn)(void *arg, uint8_t *shared_slot, int *ret_hfd);
MUST_CHECK int gofer_client_new_by_function(gofer_answer_fn answer, void *arg, struct gofer_client **ret);
/* No call may be under way. NULL is fine. */
void gofer_client_free(struct gofer_client *client);
uint64_t gofer_client_calls(const struct gofer_client *client); /* made so far; racy */

#define GOFER_RPC_PATH_SIZE (GOFER_TEXT_SIZE_MAX + 1)

struct gofer_rpc {
    struct gofer_client *client; /* borrowed; NULL: not begun */
    uint32_t slot;
    bool may_block;  /* the call is class B: the worker is left for its time */
    char *path[2];   /* GOFER_RPC_PATH_SIZE bytes each, for the request that is being made */
    int hfd;         /* what the gofer donated with the reply, or -1; take_fd() takes it */
};
void gofer_rpc_begin(struct gofer_client *client, struct gofer_rpc *rpc, bool may_block);
void gofer_rpc_end(struct gofer_rpc *rpc);
#define AUTO_RPC CLEANUP(gofer_rpc_end) struct gofer_rpc

/* Each call of the table: 0; what the gofer answered (-errno); -EIO if the client is dead. One call for
 * each begin. */
#define GOFER_CALL(NAME, name, needs, request, reply)                                              \
    MUST_CHECK int gofer_rpc_##name(struct gofer_rpc *rpc, const struct gofer_##name##_request *req, \
                                    struct gofer_##name##_reply *ret);
#include "gofer/protocol.def"
