/* SPDX-License-Identifier: MIT
 *
 * address.c: see address.h.
 */
#include "server/http/address.h"

#include <errno.h>
#include <net/if.h>
#include <netdb.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Whether a socket can be bound to the address, with a port that the system chooses; else the error
 * is in errno. */
static bool is_own(const struct addrinfo *found) {
    const int fd = socket(found->ai_family, found->ai_socktype | SOCK_CLOEXEC, 0);
    if (fd < 0) return false;
    const bool is_bound = bind(fd, found->ai_addr, found->ai_addrlen) == 0;
    const int reason = errno;
    close(fd);
    errno = reason;
    return is_bound;
}

tdm_status server_address_find(const char *host, server_address *address_out, tdm_error *err) {
    const struct addrinfo hints = {.ai_flags = AI_PASSIVE, .ai_socktype = SOCK_STREAM};
    const char *reason = "the name is too long";
    struct addrinfo *all = NULL;
    *address_out = (server_address){""};
    if (host == NULL || host[0] == '\0') return TDM_OK;
    if (if_nametoindex(host) != 0) {
        snprintf(address_out->text, sizeof address_out->text, "%s", host);
        return TDM_OK;
    }
    const int status = getaddrinfo(host, NULL, &hints, &all);
    if (status != 0)
        return tdm_fail(err, TDM_UNAVAILABLE,
                        "cannot serve on %s: %s; give an address of this machine, such as 127.0.0.1",
                        host, status == EAI_SYSTEM ? strerror(errno) : gai_strerror(status));
    for (const struct addrinfo *found = all; found != NULL; found = found->ai_next) {
        if (!is_own(found)) {
            reason = strerror(errno);
        } else if (getnameinfo(found->ai_addr, found->ai_addrlen, address_out->text,
                               sizeof address_out->text, NULL, 0, NI_NUMERICHOST) == 0) {
            if (strchr(address_out->text, '%') == NULL) {
                freeaddrinfo(all);
                return TDM_OK;
            }
            /* libwebsockets does not read it, and would wait for it. */
            address_out->text[0] = '\0';
            reason = "an address with a zone cannot be served";
        }
    }
    freeaddrinfo(all);
    return tdm_fail(err, TDM_UNAVAILABLE,
                    "cannot serve on %s: %s; give an address of this machine, such as 127.0.0.1",
                    host, reason);
}
