/* SPDX-License-Identifier: Apache-2.0 */
/* The restart codes stand in abi/, because lower layers return them, too. */
#pragma once

#include "abi/restart.h"
