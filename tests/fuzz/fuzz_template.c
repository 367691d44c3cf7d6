/* SPDX-License-Identifier: MIT
 *
 * fuzz_template.c: the input is a chat template and, after a zero byte, a context. Without a
 * context, a conversation with all fields is used. A template that can be parsed must end, with a
 * text or with an error of one line, and give the same result a second time.
 */
#include <string.h>

#include "llm/template/template.h"
#include "tests/fuzz/fuzz.h"

static const char conversation[] =
    "{\"messages\": ["
    "{\"role\": \"system\", \"content\": \"You are \\u00e9 <b>\"},"
    "{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"a\\n b\"}]},"
    "{\"role\": \"assistant\", \"content\": null, \"reasoning_content\": \"hm\", \"tool_calls\": ["
    "{\"type\": \"function\", \"id\": \"1\", \"function\": {\"name\": \"f\", \"arguments\": "
    "{\"x\": 1, \"y\": [1.5, true, null]}}}]},"
    "{\"role\": \"tool\", \"tool_call_id\": \"1\", \"content\": \"</think> 7\"}],"
    "\"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": "
    "{\"type\": \"object\", \"properties\": {\"x\": {\"type\": \"integer\"}}}}}],"
    "\"add_generation_prompt\": true, \"bos_token\": \"<s>\", \"eos_token\": \"</s>\", \"n\": -3}";

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc;
    (void)argv;
    return 0;
}

static void failure_check(const tdm_error *err, tdm_status status) {
    FUZZ_DEMAND(err->status == status && err->message[0] != '\0' &&
                    strchr(err->message, '\n') == NULL,
                "a message must be one line: '%s'", err->message);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    tdm_error err = {0}, err_again = {0};
    llm_template *tpl;
    const uint8_t *zero = size > 0 ? memchr(data, 0, size) : NULL;
    const size_t len = zero != NULL ? (size_t)(zero - data) : size;
    const char *context = zero != NULL ? (const char *)zero + 1 : conversation;
    const size_t context_len = zero != NULL ? size - len - 1 : sizeof conversation - 1;
    tdm_status status = llm_template_create("t", (const char *)data, len, &tpl, &err);
    if (status != TDM_OK) {
        failure_check(&err, status);
        FUZZ_DEMAND(tpl == NULL, "a failed template is there");
        return 0;
    }
    char *text = NULL, *text_again = NULL;
    size_t n = 0, n_again = 0;
    status = llm_template_render(tpl, context, context_len, 1700000000, &text, &n, &err);
    if (status != TDM_OK) {
        failure_check(&err, status);
        FUZZ_DEMAND(text == NULL, "a failed rendering gives a text");
    } else {
        FUZZ_DEMAND(text[n] == '\0', "the text has no end");
    }
    const tdm_status again = llm_template_render(tpl, context, context_len, 1700000000, &text_again,
                                                 &n_again, &err_again);
    FUZZ_DEMAND(again == status && n_again == n && (n == 0 || memcmp(text, text_again, n) == 0) &&
                    strcmp(err.message, err_again.message) == 0,
                "another result the second time: %d and %d, '%s' and '%s'", status, again,
                err.message, err_again.message);
    free(text);
    free(text_again);
    llm_template_destroy(tpl);
    return 0;
}
