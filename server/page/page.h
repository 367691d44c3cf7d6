/* SPDX-License-Identifier: MIT
 *
 * page.h: page.html as constants, which embed.py writes when the server is built.
 */
#ifndef TANDEM_SERVER_PAGE_H
#define TANDEM_SERVER_PAGE_H

#include <stddef.h>

extern const unsigned char server_page[]; /* [server_page_len] the bytes of page.html */
extern const size_t server_page_len;
extern const char server_page_policy[]; /* its Content-Security-Policy */

#endif
