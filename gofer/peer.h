/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The gofer's side of the transport: the ring, the channel, the listener. One thread. Its peer is the
 * sentry, which may be hostile: whatever breaks the protocol ends the loop.
 */
#pragma once

#include "base/compiler.h"

struct gofer_server;
struct gofer_peer;

/* Makes the ring and sends HELLO over `channel` (borrowed). 0 or -errno. Before lockdown. */
MUST_CHECK int gofer_peer_new(struct gofer_server *server, int channel, struct gofer_peer **ret);
void gofer_peer_free(struct gofer_peer *peer); /* NULL is fine */

/* Serves calls until the sentry or the CLI is gone (0) or the sentry broke the protocol (-EPROTO, after a
 * log line) or the host failed us (-errno). `start_sock`: where the CLI sends LISTENER; -1 = only the
 * channel is served (tests). */
MUST_CHECK int gofer_peer_loop(struct gofer_peer *peer, int start_sock);
