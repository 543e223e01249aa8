/* The architectures that are described: the list to add to. */
#include <stdio.h>
#include <string.h>

#include "models/architecture.h"

static const mha__architecture *const all[] = {
    &mha__arch_bert,        &mha__arch_roberta,         &mha__arch_albert, &mha__arch_gpt2,
    &mha__arch_llama,       &mha__arch_mistral,         &mha__arch_qwen2,  &mha__arch_qwen3,
    &mha__arch_gemma,       &mha__arch_gemma2,          &mha__arch_t5,     &mha__arch_vit,
    &mha__arch_transformer, &mha__arch_attention_layer,
};

/* Whether `word` stands in a list separated by blanks. */
static bool among(const char *list, const char *word)
{
    size_t length = strlen(word);
    for (const char *at = list; length && (at = strstr(at, word)); at += length)
        if ((at == list || at[-1] == ' ') && (at[length] == ' ' || at[length] == '\0'))
            return true;
    return false;
}

const mha__architecture *mha__architecture_find(const char *model_type)
{
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (among(all[i]->model_types, model_type))
            return all[i];
    return NULL;
}

char *mha__architecture_list(char *text, size_t size)
{
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; i < sizeof all / sizeof *all && used < size; i++)
        for (const char *at = all[i]->model_types; *at && used < size;) {
            size_t length = strcspn(at, " ");
            used += (size_t)snprintf(text + used, size - used, "%s%.*s", used ? ", " : "", (int)length, at);
            at += length + (at[length] == ' ');
        }
    return text;
}
