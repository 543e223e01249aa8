#compdef mha
# zsh completion of mha, written by "mha completion zsh"
_mha() {
  local -a commands options
  commands=(
      'forward:''run a layer: random inputs, or real weights and inputs'
      'params:''the parameter table of a layer, counted from what was '\
'allocated'
      'heads:''one width, many head counts: allocate, run, compare '\
'the totals'
      'check:''judge case files: every stage against what was expected'
      'compare:''two tensors, or two files of tensors, and everything '\
'about their difference'
      'diagnose:''somebody'\''s output in a case file: which named variant '\
'of attention produces it'
      'claims:''published statements about parameter counts, held against '\
'what is allocated'
      'bench:''throughput of one layer, in tokens/s and GFLOP/s, against '\
'the machine'\''s limits'
      'info:''version, instruction set, BLAS, threads'
      'completion:''completion script for a shell: bash, zsh or fish'
  )
  if (( CURRENT == 2 )); then
    _describe -t commands command commands
    compadd -- help --help --version
    return
  fi
  case $words[2]:$words[CURRENT-1] in
  help:help) _describe -t commands command commands; compadd -- inert storage derived stage paths masks case variants; return ;;
  completion:completion) compadd -- bash zsh fish; return ;;
  *:--d-model) _message 'N'; return ;;
  forward:--heads|params:--heads|check:--heads|diagnose:--heads) _message 'N'; return ;;
  heads:--heads) _message 'N,N,...'; return ;;
  *:--kv-heads) _message 'N'; return ;;
  *:--d-k) _message 'N'; return ;;
  *:--d-v) _message 'N'; return ;;
  *:--d-q) _message 'N'; return ;;
  *:--kdim) _message 'N'; return ;;
  *:--vdim) _message 'N'; return ;;
  *:--d-out) _message 'N'; return ;;
  *:--batch) _message 'N'; return ;;
  forward:--seq|heads:--seq) _message 'N'; return ;;
  *:--kv-seq) _message 'N'; return ;;
  *:--preset) compadd -- $(echo '
      list albert-base-v2 bert-base-cased bert-base-uncased bert-large-uncased gemma-2-2b gemma-2b
      gemma-7b gpt2 gpt2-large gpt2-medium gpt2-xl llama-13b llama-2-70b llama-2-7b llama-3-70b
      llama-3-8b llama-7b mistral-7b-v0.1 mistral-7b-v0.3 mistral-nemo-12b qwen2-0.5b qwen2-7b
      qwen3-0.6b qwen3-8b roberta-30522 roberta-base roberta-large t5-11b t5-3b t5-base t5-large
      t5-small transformer-base transformer-big vit-base-patch16-224'); return ;;
  *:--config) _files; return ;;
  *:--class) _message 'NAME'; return ;;
  forward:--dtype|params:--dtype|heads:--dtype) compadd -- $(echo '
      f32 f64 f16 bf16'); return ;;
  bench:--dtype) compadd -- $(echo '
      f32 f16 bf16'); return ;;
  *:--cache-dtype) compadd -- $(echo '
      f32 f16 bf16'); return ;;
  params:--seq) _message 'N'; return ;;
  *:--weights) _files; return ;;
  *:--layer) _message 'PREFIX'; return ;;
  *:--orientation) compadd -- $(echo '
      in-out out-in'); return ;;
  *:--input) _files; return ;;
  *:--key-input) _files; return ;;
  *:--value-input) _files; return ;;
  *:--seed) _message 'N'; return ;;
  *:--position-offset) _message 'N'; return ;;
  *:--window) _message 'L,R'; return ;;
  *:--scale) _message 'X'; return ;;
  *:--softcap) _message 'X'; return ;;
  *:--rope) compadd -- $(echo '
      interleaved half'); return ;;
  *:--rope-dim) _message 'N'; return ;;
  *:--rope-base) _message 'X'; return ;;
  *:--mask) _files; return ;;
  *:--mask-kind) compadd -- $(echo '
      additive keeps hides'); return ;;
  *:--lengths) _message 'N,N,...'; return ;;
  *:--empty-rows) compadd -- $(echo '
      zero nan'); return ;;
  *:--hidden-values) compadd -- $(echo '
      ignore propagate'); return ;;
  *:--sinks) _files; return ;;
  *:--cu-seqlens) _message '0,N,...'; return ;;
  *:--expected) _files; return ;;
  *:--rtol) _message 'X'; return ;;
  *:--atol) _message 'X'; return ;;
  *:--shape) compadd -- $(echo '
      list tiny16 bert1x128 bert8x128 bert1x512 bert8x512 gpt2_1024 llama512 llama3_1024 long8192
      cross decode2048 decode8x4096 vit197 llama2048 long16384 width40 width80 width96 width128
      width256'); return ;;
  *:--part) compadd -- $(echo '
      all both layer core proj'); return ;;
  *:--rounds) _message 'N'; return ;;
  *:--seconds) _message 'N'; return ;;
  *:--tensor) _message 'NAME'; return ;;
  *:--stage) compadd -- $(echo '
      q k v q_rot k_rot scores capped masked weights weights_mean heads output present_key
      present_value lse'); return ;;
  *:--group) compadd -- $(echo '
      role layer dtype part'); return ;;
  *:--depth) _message 'N'; return ;;
  *:--only) compadd -- $(echo '
      attention ffn norm embedding head'); return ;;
  *:--sort) compadd -- $(echo '
      elements name'); return ;;
  *:--format) compadd -- $(echo '
      table json csv markdown'); return ;;
  *:--head) _message 'N'; return ;;
  *:--query) _message 'N'; return ;;
  *:--output) _files; return ;;
  *:--trace) _files; return ;;
  *:--save-case) _files; return ;;
  *:--path) compadd -- $(echo '
      auto fast blas exact'); return ;;
  *:--isa) compadd -- $(echo '
      auto avx512 avx2 neon scalar'); return ;;
  *:--threads) _message 'N'; return ;;
  *:--jobs) _message 'N'; return ;;
  esac
  case $words[2] in
  forward)
    options=(
      '--d-model:''width of the model'
      '--heads:''query heads [of --weights: what its configuration says]'
      '--kv-heads:''key/value heads; must divide heads [heads]'
      '--d-k:''width of one head of Q and K [d_model / heads]'
      '--d-v:''width of one head of V [d_k]'
      '--d-q:''width of the query input [d_model]'
      '--kdim:''width of the key input [d_model]'
      '--vdim:''width of the value input [kdim]'
      '--d-out:''width of the output [d_model]'
      '--bias:''with b_Q, b_K, b_V and b_O (the default)'
      '--no-bias:''without them'
      '--batch:''batch rows; params: sequences of the pass that --seq '\
'counts'
      '--seq:''queries in each batch row'
      '--kv-seq:''keys in each batch row: cross-attention [self-attention: '\
'as many as queries]'
      '--merged-qk:''one matrix per head in place of W_Q and W_K: its cost, '\
'its rank, the same scores'
      '--preset:''a model that is built in: gpt2, bert-base-uncased, llama-2-70b, '\
'...; "list" lists them'
      '--config:''the model of a config.json'
      '--dtype:''type the weights are stored in'
      '--cache-dtype:''type of the key/value cache [bench, where it decodes: '\
'f32; forward: no cache]'
      '--weights:''weights of a public checkpoint or of our own names; '\
'--heads or a config.json beside it'
      '--layer:''which attention layer of the file or model: how the '\
'names of its tensors begin'
      '--orientation:''how matrices lie in the file, where names and shapes '\
'do not tell'
      '--input:''query input, (B, T, d_q) or (T, d_q); keys and values '\
'too unless given'
      '--key-input:''key input; values too unless given'
      '--value-input:''value input'
      '--seed:''seed of random weights and inputs'
      '--causal:''query i sees key j only if j <= i + offset'
      '--position-offset:''position of query 0 for causal, window and rope [0]'
      '--window:''a query at position p sees keys p-L to p+R; -1 is open'
      '--scale:''factor on Q K^T [1/sqrt(d_k)]'
      '--softcap:''scores become X tanh(score / X) before keys are hidden; '\
'0 is off'
      '--rope:''rotate Q and K by position, in this pairing'
      '--rope-dim:''features of each head rotated [d_k]'
      '--rope-base:''base of the rotation'\''s angles [10000]'
      '--mask:''mask, broadcast from the right to (B, h, T_q, S)'
      '--mask-kind:''numbers to add, or true where a key stays or goes [additive '\
'for numbers]'
      '--lengths:''keys that are real, one number for each batch row; later '\
'ones are hidden'
      '--empty-rows:''weights of a query that sees no key'
      '--hidden-values:''a hidden key'\''s value row: left out, or times 0, which '\
'keeps its NaN'
      '--alibi:''adds -slope (distance from query to key) to the scores, '\
'with the slopes of Press et al.'
      '--sinks:''one more logit of each head in the denominator of its '\
'softmax, (heads)'
      '--cu-seqlens:''where sequences packed into one batch row begin and '\
'the last one ends'
      '--stage:''this stage alone is judged, or written by --trace; with '\
'--expected: what it holds [the output]'
      '--head:''the head whose attention is shown, counted from 0 [the '\
'first ones]'
      '--query:''the query whose attention is shown, counted from 0 [a '\
'few]'
      '--output:''writes the output: .npy or .safetensors'
      '--trace:''writes every stage, by name: .safetensors'
      '--save-case:''writes inputs, weights and every stage as a case for '\
'mha check'
      '--json:''one JSON object instead of text'
      '--quiet:''no text: only files and the exit code'
      '--help:''this text'
      '--path:''which arithmetic; exact is float64 in plain loops'
      '--isa:''instruction set of the kernels [the best]'
      '--threads:''threads [all that are available]'
      '--no-pack:''no packed copies of the weights: the fast path projects '\
'by BLAS'
    ) ;;
  params)
    options=(
      '--d-model:''width of the model'
      '--heads:''query heads [of --weights: what its configuration says]'
      '--kv-heads:''key/value heads; must divide heads [heads]'
      '--d-k:''width of one head of Q and K [d_model / heads]'
      '--d-v:''width of one head of V [d_k]'
      '--d-q:''width of the query input [d_model]'
      '--kdim:''width of the key input [d_model]'
      '--vdim:''width of the value input [kdim]'
      '--d-out:''width of the output [d_model]'
      '--bias:''with b_Q, b_K, b_V and b_O (the default)'
      '--no-bias:''without them'
      '--batch:''batch rows; params: sequences of the pass that --seq '\
'counts'
      '--merged-qk:''one matrix per head in place of W_Q and W_K: its cost, '\
'its rank, the same scores'
      '--preset:''a model that is built in: gpt2, bert-base-uncased, llama-2-70b, '\
'...; "list" lists them'
      '--config:''the model of a config.json'
      '--class:''its head: BertForMaskedLM, MaskedLM, pooler, ... [what '\
'its configuration names]'
      '--dtype:''type the weights are stored in'
      '--seq:''length: shows what a forward pass and the key/value '\
'cache of a model cost'
      '--weights:''weights of a public checkpoint or of our own names; '\
'--heads or a config.json beside it'
      '--group:''sums of a model or file by this'
      '--depth:''sums by the first N components of the names'
      '--only:''this part alone'
      '--sort:''in this order [the checkpoint'\''s]'
      '--all:''every row of a model: blocks are not folded'
      '--per-head:''each head'\''s slice of every weight, too'
      '--format:''how the table is written'
      '--json:''one JSON object instead of text'
      '--quiet:''no text: only files and the exit code'
      '--help:''this text'
    ) ;;
  heads)
    options=(
      '--d-model:''width of the model'
      '--heads:''head counts to compare [those of 1,2,3,4,6,8,12 that '\
'divide d_model]'
      '--kv-heads:''key/value heads; must divide heads [heads]'
      '--d-k:''width of one head of Q and K [d_model / heads]'
      '--d-v:''width of one head of V [d_k]'
      '--d-q:''width of the query input [d_model]'
      '--kdim:''width of the key input [d_model]'
      '--vdim:''width of the value input [kdim]'
      '--d-out:''width of the output [d_model]'
      '--bias:''with b_Q, b_K, b_V and b_O (the default)'
      '--no-bias:''without them'
      '--batch:''batch rows; params: sequences of the pass that --seq '\
'counts'
      '--seq:''queries in each batch row'
      '--kv-seq:''keys in each batch row: cross-attention [self-attention: '\
'as many as queries]'
      '--preset:''a model that is built in: gpt2, bert-base-uncased, llama-2-70b, '\
'...; "list" lists them'
      '--config:''the model of a config.json'
      '--class:''its head: BertForMaskedLM, MaskedLM, pooler, ... [what '\
'its configuration names]'
      '--dtype:''type the weights are stored in'
      '--run:''runs the attention layers of the model, too'
      '--seed:''seed of random weights and inputs'
      '--causal:''query i sees key j only if j <= i + offset'
      '--json:''one JSON object instead of text'
      '--quiet:''no text: only files and the exit code'
      '--help:''this text'
      '--path:''which arithmetic; exact is float64 in plain loops'
      '--isa:''instruction set of the kernels [the best]'
      '--threads:''threads [all that are available]'
    ) ;;
  check)
    options=(
      '--heads:''query heads [of --weights: what its configuration says]'
      '--kv-heads:''key/value heads; must divide heads [heads]'
      '--d-k:''width of one head of Q and K [d_model / heads]'
      '--config:''the model of a config.json'
      '--weights:''weights of a public checkpoint or of our own names; '\
'--heads or a config.json beside it'
      '--layer:''which attention layer of the file or model: how the '\
'names of its tensors begin'
      '--orientation:''how matrices lie in the file, where names and shapes '\
'do not tell'
      '--input:''query input, (B, T, d_q) or (T, d_q); keys and values '\
'too unless given'
      '--key-input:''key input; values too unless given'
      '--value-input:''value input'
      '--causal:''query i sees key j only if j <= i + offset'
      '--position-offset:''position of query 0 for causal, window and rope [0]'
      '--window:''a query at position p sees keys p-L to p+R; -1 is open'
      '--scale:''factor on Q K^T [1/sqrt(d_k)]'
      '--softcap:''scores become X tanh(score / X) before keys are hidden; '\
'0 is off'
      '--rope:''rotate Q and K by position, in this pairing'
      '--rope-dim:''features of each head rotated [d_k]'
      '--rope-base:''base of the rotation'\''s angles [10000]'
      '--mask:''mask, broadcast from the right to (B, h, T_q, S)'
      '--mask-kind:''numbers to add, or true where a key stays or goes [additive '\
'for numbers]'
      '--lengths:''keys that are real, one number for each batch row; later '\
'ones are hidden'
      '--empty-rows:''weights of a query that sees no key'
      '--hidden-values:''a hidden key'\''s value row: left out, or times 0, which '\
'keeps its NaN'
      '--alibi:''adds -slope (distance from query to key) to the scores, '\
'with the slopes of Press et al.'
      '--sinks:''one more logit of each head in the denominator of its '\
'softmax, (heads)'
      '--cu-seqlens:''where sequences packed into one batch row begin and '\
'the last one ends'
      '--expected:''somebody'\''s output for --weights and --input, in place '\
'of a case file'
      '--stage:''this stage alone is judged, or written by --trace; with '\
'--expected: what it holds [the output]'
      '--json:''one JSON object instead of text'
      '--quiet:''no text: only files and the exit code'
      '--help:''this text'
      '--path:''which arithmetic; exact is float64 in plain loops'
      '--isa:''instruction set of the kernels [the best]'
      '--threads:''threads [all that are available]'
      '--jobs:''cases judged at a time; more than one share no threads '\
'inside a case'
    ) ;;
  compare)
    options=(
      '--rtol:''a and b agree when |a - b| <= atol + rtol |b|'
      '--atol:''see --rtol'
      '--json:''one JSON object instead of text'
      '--quiet:''no text: only files and the exit code'
      '--help:''this text'
    ) ;;
  diagnose)
    options=(
      '--heads:''query heads [of --weights: what its configuration says]'
      '--kv-heads:''key/value heads; must divide heads [heads]'
      '--d-k:''width of one head of Q and K [d_model / heads]'
      '--config:''the model of a config.json'
      '--weights:''weights of a public checkpoint or of our own names; '\
'--heads or a config.json beside it'
      '--layer:''which attention layer of the file or model: how the '\
'names of its tensors begin'
      '--orientation:''how matrices lie in the file, where names and shapes '\
'do not tell'
      '--input:''query input, (B, T, d_q) or (T, d_q); keys and values '\
'too unless given'
      '--key-input:''key input; values too unless given'
      '--value-input:''value input'
      '--causal:''query i sees key j only if j <= i + offset'
      '--position-offset:''position of query 0 for causal, window and rope [0]'
      '--window:''a query at position p sees keys p-L to p+R; -1 is open'
      '--scale:''factor on Q K^T [1/sqrt(d_k)]'
      '--softcap:''scores become X tanh(score / X) before keys are hidden; '\
'0 is off'
      '--rope:''rotate Q and K by position, in this pairing'
      '--rope-dim:''features of each head rotated [d_k]'
      '--rope-base:''base of the rotation'\''s angles [10000]'
      '--mask:''mask, broadcast from the right to (B, h, T_q, S)'
      '--mask-kind:''numbers to add, or true where a key stays or goes [additive '\
'for numbers]'
      '--lengths:''keys that are real, one number for each batch row; later '\
'ones are hidden'
      '--empty-rows:''weights of a query that sees no key'
      '--hidden-values:''a hidden key'\''s value row: left out, or times 0, which '\
'keeps its NaN'
      '--alibi:''adds -slope (distance from query to key) to the scores, '\
'with the slopes of Press et al.'
      '--sinks:''one more logit of each head in the denominator of its '\
'softmax, (heads)'
      '--cu-seqlens:''where sequences packed into one batch row begin and '\
'the last one ends'
      '--expected:''somebody'\''s output for --weights and --input, in place '\
'of a case file'
      '--tensor:''the tensor to explain: expected.output, or a stage alone '\
'[the output]'
      '--stage:''this stage alone is judged, or written by --trace; with '\
'--expected: what it holds [the output]'
      '--json:''one JSON object instead of text'
      '--quiet:''no text: only files and the exit code'
      '--help:''this text'
    ) ;;
  claims)
    options=(
      '--json:''one JSON object instead of text'
      '--quiet:''no text: only files and the exit code'
      '--help:''this text'
    ) ;;
  bench)
    options=(
      '--dtype:''type the weights are stored in'
      '--cache-dtype:''type of the key/value cache [bench, where it decodes: '\
'f32; forward: no cache]'
      '--shape:''what to measure, as often as one likes; "list" lists '\
'the names [a standard set]'
      '--part:''the whole layer; attention alone, with Q, K, V given; '\
'the projections alone; both: the first two'
      '--rounds:''rounds in which all take turns'
      '--seconds:''no third or later round of a part of a shape after this'
      '--csv:''comma-separated values'
      '--json:''one JSON object instead of text'
      '--quiet:''no text: only files and the exit code'
      '--help:''this text'
      '--path:''which arithmetic; exact is float64 in plain loops'
      '--isa:''instruction set of the kernels [the best]'
      '--threads:''threads [all that are available]'
      '--no-pack:''no packed copies of the weights: the fast path projects '\
'by BLAS'
    ) ;;
  info)
    options=(
      '--json:''one JSON object instead of text'
      '--quiet:''no text: only files and the exit code'
      '--help:''this text'
      '--isa:''instruction set of the kernels [the best]'
    ) ;;
  completion)
    options=(
      '--help:''this text'
    ) ;;
  esac
  [[ $PREFIX != -* ]] && case $words[2] in
  check) _files; return ;;
  compare) _files; return ;;
  diagnose) _files; return ;;
  esac
  _describe -o -t options option options
}
# Run by zsh as the function _mha of a file in $fpath, or read by: source <(mha completion zsh)
if [ "$funcstack[1]" = _mha ]; then _mha "$@"; else compdef _mha mha; fi
