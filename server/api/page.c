/* SPDX-License-Identifier: MIT
 *
 * page.c: serves the page of server/page, which the build makes a constant (page/embed.py). Its
 * Content-Security-Policy names its script and style by their hashes, so a browser runs and loads
 * nothing else.
 */
#include "server/api/state.h"
#include "server/page/page.h"

tdm_status api_page(api_context *c, tdm_error *err) {
    if (!c->api->params.has_page) return tdm_fail(err, TDM_NOT_FOUND, "the page is off (no-webui)");
    server_exchange_add_header(c->x, "content-security-policy:", server_page_policy);
    server_exchange_add_header(c->x, "referrer-policy:", "no-referrer");
    server_exchange_reply(c->x, 200, "text/html; charset=utf-8", server_page, server_page_len);
    return TDM_OK;
}
