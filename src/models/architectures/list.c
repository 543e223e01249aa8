/* The architectures that are described: the list to add to. */
#include <stdio.h>
#include <string.h>

#include "models/architecture.h"

static const mha_architecture *const all[] = {
    &mha_arch_bert,        &mha_arch_roberta,         &mha_arch_albert, &mha_arch_gpt2,
    &mha_arch_llama,       &mha_arch_mistral,         &mha_arch_qwen2,  &mha_arch_qwen3,
    &mha_arch_gemma,       &mha_arch_gemma2,          &mha_arch_t5,     &mha_arch_vit,
    &mha_arch_transformer, &mha_arch_attention_layer,
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

const mha_architecture *mha_architecture_find(const char *model_type)
{
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (among(all[i]->model_types, model_type))
            return all[i];
    return NULL;
}

char *mha_architecture_list(char *text, size_t size)
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
