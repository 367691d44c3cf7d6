/* SPDX-License-Identifier: MIT
 *
 * chat_history.c: see chat_history.h.
 */
#include "runner/chat/chat_history.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "llm/template/template_json.h"
#include "runner/json.h"
#include "runner/output_file.h"

#define FILE_SIZE_MAX ((size_t)64 << 20)

static tdm_status no_memory(tdm_error *err) {
    return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "no memory for the conversation");
}

tdm_status runner_chat_history_add(runner_chat_history *history, const char *role,
                                   const char *content, tdm_error *err) {
    if (history->n == history->capacity) {
        size_t capacity = history->capacity * 2 + 8;
        runner_chat_message *grown = realloc(history->messages, capacity * sizeof *grown);
        if (grown == NULL) return no_memory(err);
        history->messages = grown;
        history->capacity = capacity;
    }
    runner_chat_message message = {strdup(role), strdup(content)};
    if (message.role == NULL || message.content == NULL) {
        free(message.role);
        free(message.content);
        return no_memory(err);
    }
    history->messages[history->n++] = message;
    return TDM_OK;
}

void runner_chat_history_truncate(runner_chat_history *history, size_t n) {
    while (history->n > n) {
        history->n--;
        free(history->messages[history->n].role);
        free(history->messages[history->n].content);
    }
}

size_t runner_chat_history_n_system(const runner_chat_history *history) {
    return history->n > 0 && strcmp(history->messages[0].role, "system") == 0;
}

void runner_chat_history_clear(runner_chat_history *history) {
    runner_chat_history_truncate(history, 0);
    free(history->messages);
    *history = (runner_chat_history){0};
}

static void messages_write(runner_json_writer *w, const char *key,
                           const runner_chat_history *history, size_t first) {
    size_t n_system = runner_chat_history_n_system(history);
    runner_json_begin_array(w, key);
    for (size_t i = 0; i < history->n; i++) {
        if (i >= n_system && i < first) continue;
        runner_json_begin_object(w, NULL);
        runner_json_string(w, "role", history->messages[i].role);
        runner_json_string(w, "content", history->messages[i].content);
        runner_json_end_object(w);
    }
    runner_json_end_array(w);
}

tdm_status runner_chat_history_context(const runner_chat_history *history, size_t first,
                                       bool is_open, const char *bos, const char *eos,
                                       char **json_out, tdm_error *err) {
    size_t len = 0;
    *json_out = NULL;
    FILE *out = open_memstream(json_out, &len);
    if (out == NULL) return no_memory(err);
    runner_json_writer w = {.out = out};
    runner_json_begin_object(&w, NULL);
    messages_write(&w, "messages", history, first);
    runner_json_bool(&w, "add_generation_prompt", is_open);
    runner_json_string(&w, "bos_token", bos);
    runner_json_string(&w, "eos_token", eos);
    runner_json_end_object(&w);
    bool is_bad = ferror(out) != 0;
    if (fclose(out) == 0 && !is_bad) return TDM_OK;
    free(*json_out);
    *json_out = NULL;
    return no_memory(err);
}

tdm_status runner_chat_history_save(const runner_chat_history *history, const char *path,
                                    tdm_error *err) {
    runner_output_file file;
    tdm_status status = runner_output_open(&file, path, err);
    if (status != TDM_OK) return status;
    runner_json_writer w = {.out = file.stream};
    messages_write(&w, NULL, history, 0);
    return runner_output_close(&file, TDM_OK, err);
}

/* Appends one message of the file to *history; false if it is none, or (*is_full) without
 * memory. */
static bool message_read(const llm_tpl_value *value, runner_chat_history *history, bool *is_full) {
    char *texts[2] = {NULL, NULL};
    static const char *const keys[2] = {"role", "content"};
    bool ok = value->kind == LLM_TPL_DICT;
    for (int i = 0; i < 2 && ok; i++) {
        const llm_tpl_value *found = llm_tpl_dict_get_str(value->as.dict, llm_tpl_str_of(keys[i]));
        ok = found != NULL && found->kind == LLM_TPL_STRING &&
             (found->as.text.len == 0 ||
              memchr(found->as.text.ptr, '\0', found->as.text.len) == NULL);
        if (!ok) break;
        texts[i] = strndup(found->as.text.len > 0 ? found->as.text.ptr : "", found->as.text.len);
        *is_full = *is_full || texts[i] == NULL;
        ok = texts[i] != NULL;
    }
    if (ok && runner_chat_history_add(history, texts[0], texts[1], NULL) != TDM_OK) *is_full = true;
    free(texts[0]);
    free(texts[1]);
    return ok && !*is_full;
}

static tdm_status file_read(const char *path, char **text_out, size_t *len_out, tdm_error *err) {
    errno = 0;
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        return tdm_fail(err, errno == ENOENT ? TDM_NOT_FOUND : TDM_IO, "%s: cannot be read: %s",
                        path, strerror(errno));
    size_t capacity = 1 << 16, len = 0;
    char *text = malloc(capacity);
    while (text != NULL && len < FILE_SIZE_MAX) {
        size_t n = fread(text + len, 1, capacity - len, file);
        len += n;
        if (len < capacity) break;
        char *grown = realloc(text, capacity *= 2);
        if (grown == NULL) free(text);
        text = grown;
    }
    bool is_bad = ferror(file) != 0;
    fclose(file);
    *text_out = text;
    *len_out = len;
    if (text == NULL) return no_memory(err);
    if (!is_bad && len < FILE_SIZE_MAX) return TDM_OK;
    free(text);
    return is_bad ? tdm_fail(err, TDM_IO, "%s: cannot be read: %s", path, strerror(errno))
                  : tdm_fail(err, TDM_OUT_OF_RANGE, "%s: longer than 64 MiB", path);
}

tdm_status runner_chat_history_load(runner_chat_history *history, const char *path,
                                    tdm_error *err) {
    runner_chat_history loaded = {0};
    llm_tpl_job job = {.name = path, .line = 1, .err = err};
    llm_tpl_value list;
    char *text = NULL;
    size_t len = 0, i = 0;
    bool is_full = false;
    tdm_status status = file_read(path, &text, &len, err);
    if (status != TDM_OK) return status;
    if (!llm_tpl_json_read(&job, (llm_tpl_str){text, len}, &list)) {
        status = job.status;
    } else if (list.kind != LLM_TPL_LIST) {
        status = tdm_fail(err, TDM_DATA_LOSS, "%s: is no list of messages", path);
    } else {
        while (i < list.as.list->n && message_read(&list.as.list->items[i], &loaded, &is_full)) i++;
        if (is_full)
            status = no_memory(err);
        else if (i < list.as.list->n)
            status =
                tdm_fail(err, TDM_DATA_LOSS,
                         "%s: message %zu is no {\"role\": TEXT, \"content\": TEXT}", path, i + 1);
    }
    llm_tpl_job_end(&job);
    free(text);
    if (status != TDM_OK) {
        runner_chat_history_clear(&loaded);
        return status;
    }
    runner_chat_history_clear(history);
    *history = loaded;
    return TDM_OK;
}
