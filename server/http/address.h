/* SPDX-License-Identifier: MIT
 *
 * address.h: finds the address to listen on. libwebsockets waits without a message for an address
 * that the machine does not have, and knows no host names.
 */
#ifndef TANDEM_SERVER_ADDRESS_H
#define TANDEM_SERVER_ADDRESS_H

#include "tandem/status.h"

typedef struct server_address {
    char text[64]; /* a numeric address, or the name of a network interface; "" = all of IPv4 */
} server_address;

/* `host` is an address of this machine, a host name that stands for one, or the name of a network
 * interface; "" or NULL = all of IPv4. A name may need a query to a name server. TDM_UNAVAILABLE
 * where this machine has no such address; the message names the host. [any-thread] */
tdm_status server_address_find(const char *host, server_address *address_out, tdm_error *err);

#endif
