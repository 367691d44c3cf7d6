/* SPDX-License-Identifier: MIT
 *
 * access.c: who may call: API keys, Host and Origin headers, CORS.
 *
 * Keys are kept and compared as SHA-256, in a time that does not depend on where they differ. Pages
 * of other sites cannot call a local server. The Host header must have a name of this machine, so
 * that a name which an attacker's DNS server points to it ("DNS rebinding") does not work. An
 * Origin must be the server's own or an allowed one.
 */
#include <openssl/crypto.h>
#include <openssl/sha.h>
#include <stdlib.h>
#include <string.h>

#include "server/api/state.h"

static void texts_free(char **texts, int n) {
    for (int i = 0; i < n && texts != NULL; i++) free(texts[i]);
    free(texts);
}

static char **texts_copy(const char *const *texts, int n) {
    char **copies = calloc((size_t)n + 1, sizeof *copies);
    for (int i = 0; i < n && copies != NULL; i++)
        if ((copies[i] = strdup(texts[i])) == NULL) {
            texts_free(copies, i);
            copies = NULL;
        }
    return copies;
}

tdm_status api_access_create(server_api *api, const server_api_params *params, tdm_error *err) {
    api->origins = texts_copy(params->origins, params->n_origin);
    api->hosts = texts_copy(params->hosts, params->n_host);
    api->key_hashes = calloc((size_t)params->n_key + 1, KEY_HASH_SIZE);
    if (api->origins == NULL || api->hosts == NULL || api->key_hashes == NULL)
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "no memory for API keys");
    for (int i = 0; i < params->n_key; i++)
        SHA256((const unsigned char *)params->keys[i], strlen(params->keys[i]),
               api->key_hashes + (size_t)i * KEY_HASH_SIZE);
    api->params.keys = NULL; /* not kept */
    return TDM_OK;
}

void api_access_destroy(server_api *api) {
    texts_free(api->origins, api->params.n_origin);
    texts_free(api->hosts, api->params.n_host);
    free(api->key_hashes);
}

static bool key_is_known(const server_api *api, const char *key) {
    unsigned char hash[KEY_HASH_SIZE];
    bool is_known = false;
    SHA256((const unsigned char *)key, strlen(key), hash);
    for (int i = 0; i < api->params.n_key; i++) /* always all, so that the time is the same */
        is_known |=
            CRYPTO_memcmp(hash, api->key_hashes + (size_t)i * KEY_HASH_SIZE, KEY_HASH_SIZE) == 0;
    return is_known;
}

/* Whether a Host header, HOST or HOST:PORT or [V6]:PORT, has that name. */
static bool host_is(const char *host, const char *name) {
    const size_t n = strlen(name);
    if (strncasecmp(host, name, n) != 0) return false;
    return host[n] == '\0' ||
           (host[n] == ':' && host[n + 1 + strspn(host + n + 1, "0123456789")] == '\0');
}

static bool host_is_ours(const server_api *api, const char *host) {
    static const char *const local[] = {"localhost", "127.0.0.1", "[::1]"};
    for (size_t i = 0; i < sizeof local / sizeof local[0]; i++)
        if (host_is(host, local[i])) return true;
    for (int i = 0; i < api->params.n_host; i++)
        if (host_is(host, api->hosts[i])) return true;
    return false;
}

/* Whether an origin, SCHEME://HOST[:PORT], is that of the server itself. */
static bool origin_is_own(const char *origin, const char *host) {
    const char *at = strstr(origin, "://");
    return at != NULL && host[0] != '\0' && strcasecmp(at + 3, host) == 0;
}

static bool origin_is_allowed(const server_api *api, const char *origin) {
    for (int i = 0; i < api->params.n_origin; i++)
        if (strcmp(api->origins[i], "*") == 0 || strcasecmp(api->origins[i], origin) == 0)
            return true;
    return false;
}

/* Adds the headers by which a browser lets a page of this origin read the reply. */
static void cors_add(server_exchange *x, const char *origin) {
    server_exchange_add_header(x, "access-control-allow-origin:", origin);
    server_exchange_add_header(x, "vary:", "origin");
    if (server_exchange_method(x) != SERVER_METHOD_OPTIONS) return;
    server_exchange_add_header(x, "access-control-allow-methods:", "GET, POST");
    /* clients send headers of their own (x-stainless-*); "*" does not include authorization
     * (https://fetch.spec.whatwg.org/#http-access-control-allow-headers) */
    server_exchange_add_header(x, "access-control-allow-headers:", "*, authorization");
    server_exchange_add_header(x, "access-control-max-age:", "600");
}

bool api_access_check(server_api *api, server_exchange *x, bool is_public, api_shape shape) {
    const char *origin = server_exchange_origin(x), *host = server_exchange_host(x);
    if (api->params.checks_host && !host_is_ours(api, host)) {
        api_error_reply(x, shape, 403,
                        "the Host header names another machine; the server takes more names with "
                        "--allow-host",
                        0);
        return false;
    }
    if (origin[0] != '\0' && !origin_is_own(origin, host)) {
        if (!origin_is_allowed(api, origin)) {
            api_error_reply(x, shape, 403,
                            "pages of this origin may not call the server; it allows some with "
                            "--allow-origin",
                            0);
            return false;
        }
        cors_add(x, origin);
        if (server_exchange_method(x) == SERVER_METHOD_OPTIONS) {
            server_exchange_reply(x, 204, NULL, "", 0);
            return false;
        }
    }
    if (is_public || api->params.n_key == 0 || key_is_known(api, server_exchange_key(x)))
        return true;
    server_exchange_add_header(x, "www-authenticate:", "Bearer");
    /* OpenAI's and Anthropic's clients read it, and do not try again */
    server_exchange_add_header(x, "x-should-retry:", "false");
    api_error_reply(x, shape, 401,
                    "the API key is missing or wrong; send it as 'Authorization: Bearer KEY' or as "
                    "'x-api-key: KEY'",
                    0);
    return false;
}

/* A number for a text: the first bytes of its hash; never 0. */
static uint64_t number_of(const char *text) {
    unsigned char hash[KEY_HASH_SIZE];
    uint64_t number;
    SHA256((const unsigned char *)text, strlen(text), hash);
    memcpy(&number, hash, sizeof number);
    return number | 1;
}

uint64_t api_access_client(const server_exchange *x) {
    const char *key = server_exchange_key(x);
    return number_of(key[0] != '\0' ? key : server_exchange_peer(x));
}

uint64_t api_access_scope(const server_exchange *x) {
    const char *key = server_exchange_key(x);
    return key[0] != '\0' ? number_of(key) : 0;
}
