/* SPDX-License-Identifier: MIT
 *
 * page.h: the page as embed.py makes it of page.html.
 */
#ifndef TANDEM_SERVER_PAGE_H
#define TANDEM_SERVER_PAGE_H

#include <stddef.h>

extern const unsigned char server_page[]; /* [server_page_len] */
extern const size_t server_page_len;
extern const char server_page_policy[]; /* its Content-Security-Policy */

#endif
