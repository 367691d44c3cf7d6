/* SPDX-License-Identifier: MIT
 *
 * schema_absent.c: built instead of schema*.c where jansson is missing. It refuses every schema.
 */
#include "server/grammar/grammar.h"

static tdm_status absent(char **text_out, tdm_error *err) {
    *text_out = NULL;
    return tdm_fail(
        err, TDM_UNSUPPORTED,
        "JSON Schema: this program was built without jansson; install libjansson-dev and "
        "build it again, or write a grammar (--grammar)");
}

tdm_status grammar_schema_to_gbnf(const char *schema, size_t len, const char *rule, char **text_out,
                                  tdm_error *err) {
    (void)schema;
    (void)len;
    (void)rule;
    return absent(text_out, err);
}

tdm_status grammar_definitions_to_gbnf(const char *schema, size_t len, char **text_out,
                                       tdm_error *err) {
    (void)schema;
    (void)len;
    return absent(text_out, err);
}
