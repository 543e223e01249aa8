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
      'show:''what heads look at, in numbers and as a page; from cases, '\
'traces or a run'
      'check:''judge case files: compare every stage with the expected '\
'one'
      'compare:''compare two tensors, or two files of tensors; of quantised '\
'ones, what that cost'
      'diagnose:''find the named variant of attention that produces the '\
'output recorded in a case file'
      'power:''which wrong attentions a test with these inputs and '\
'this tolerance would accept'
      'claims:''published statements about parameter counts, compared '\
'with what is allocated'
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
  help:help) _describe -t commands command commands; compadd -- inert storage derived stage paths masks ranks architectures case variants; return ;;
  completion:completion) compadd -- bash zsh fish; return ;;
  *:--d-model) _message 'N'; return ;;
  forward:--heads|params:--heads|show:--heads|check:--heads|diagnose:--heads|power:--heads) _message 'N'; return ;;
  heads:--heads) _message 'N,N,...'; return ;;
  *:--kv-heads) _message 'N'; return ;;
  *:--d-k) _message 'N'; return ;;
  *:--d-v) _message 'N'; return ;;
  *:--d-q) _message 'N'; return ;;
  *:--kdim) _message 'N'; return ;;
  *:--vdim) _message 'N'; return ;;
  *:--d-out) _message 'N'; return ;;
  forward:--batch|params:--batch|heads:--batch|power:--batch|bench:--batch) _message 'N'; return ;;
  show:--batch) _message 'N'; return ;;
  forward:--seq|heads:--seq|show:--seq|power:--seq) _message 'N'; return ;;
  *:--kv-seq) _message 'N'; return ;;
  *:--preset) compadd -- $(echo '
      list albert-base-v2 beit-base-patch16-224 bert-base-cased bert-base-uncased bert-large-uncased
      clip-vit-base-patch32 deberta-base deberta-v3-base deepseek-v3 distilbert-base-uncased
      falcon-7b gemma-2-2b gemma-2b gemma-7b gpt2 gpt2-large gpt2-medium gpt2-xl llama-13b
      llama-2-70b llama-2-7b llama-3-70b llama-3-8b llama-7b mistral-7b-v0.1 mistral-7b-v0.3
      mistral-nemo-12b mixtral-8x7b-v0.1 modernbert-base mpnet-base phi-3-mini-4k qwen2-0.5b qwen2-7b
      qwen3-0.6b qwen3-8b roberta-30522 roberta-base roberta-large swin-tiny-patch4-window7-224
      swinv2-tiny-patch4-window8-256 t5-11b t5-3b t5-base t5-large t5-small transformer-base
      transformer-big umt5-small vit-base-patch16-224 whisper-large-v3'); return ;;
  *:--config) _files; return ;;
  *:--architecture) _files; return ;;
  *:--class) _message 'NAME'; return ;;
  forward:--dtype|params:--dtype|heads:--dtype|show:--dtype|power:--dtype) compadd -- $(echo '
      f32 f64 f16 bf16 q8_0 q4_0 q4_1 q5_0 q5_1 q2_k q3_k q4_k q5_k q6_k iq4_nl iq4_xs mxfp4
      f8_e4m3_scaled f8_e5m2_scaled'); return ;;
  bench:--dtype) compadd -- $(echo '
      f32 f16 bf16 q8_0 q4_0 q4_1 q5_0 q5_1 q2_k q3_k q4_k q5_k q6_k iq4_nl iq4_xs mxfp4
      f8_e4m3_scaled f8_e5m2_scaled'); return ;;
  compare:--dtype) compadd -- $(echo '
      q8_0 q4_0'); return ;;
  *:--cache-dtype) compadd -- $(echo '
      f32 f16 bf16 i8'); return ;;
  params:--seq|bench:--seq) _message 'N'; return ;;
  *:--encoder-seq) _message 'N'; return ;;
  *:--ranks) _message 'P'; return ;;
  *:--machine) _message 'F,M,L,B[,C,N]'; return ;;
  *:--weights) _files; return ;;
  *:--layer) _message 'PREFIX'; return ;;
  *:--orientation) compadd -- $(echo '
      in-out out-in'); return ;;
  *:--input) _files; return ;;
  *:--key-input) _files; return ;;
  *:--value-input) _files; return ;;
  *:--seed) _message 'N'; return ;;
  *:--position-offset) _message 'N'; return ;;
  *:--key-offset) _message 'N'; return ;;
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
  *:--sigmoid) _message 'X'; return ;;
  *:--sinks) _files; return ;;
  *:--cu-seqlens) _message '0,N,...'; return ;;
  *:--expected) _files; return ;;
  *:--rtol) _message 'X'; return ;;
  *:--atol) _message 'X'; return ;;
  *:--nmse) _message 'X'; return ;;
  *:--cosine) _message 'X'; return ;;
  check:--precision|diagnose:--precision|power:--precision) compadd -- $(echo '
      f32 f16 bf16'); return ;;
  forward:--precision|bench:--precision) compadd -- $(echo '
      f32 f16 bf16'); return ;;
  *:--suggest) _files; return ;;
  *:--with) _message 'mask|keeps|padding|lengths|empty|poison|past|sinks|norms'; return ;;
  *:--kind) compadd -- $(echo '
      mha sdpa'); return ;;
  *:--shape) compadd -- $(echo '
      list tiny16 bert1x128 bert8x128 bert1x512 bert8x512 gpt2_1024 llama512 llama3_1024 long8192
      cross decode2048 decode8x4096 vit197 llama2048 long16384 width40 width80 width96 width128
      width256 tiny8 bert1x127 decode2047 few4x2047 few8x127 few8x2047 mask2048 docs8x256'); return ;;
  *:--part) compadd -- $(echo '
      all both layer core proj'); return ;;
  *:--rounds) _message 'N'; return ;;
  *:--seconds) _message 'N'; return ;;
  *:--tensor) _message 'NAME'; return ;;
  *:--stage) compadd -- $(echo '
      q k v q_rot k_rot scores capped masked weights weights_mean heads output present_key
      present_value lse q_latent kv_latent gated'); return ;;
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
  *:--rows) _message 'A:B'; return ;;
  *:--keys) _message 'A:B'; return ;;
  *:--tokens) _files; return ;;
  forward:--picture|show:--picture|check:--picture|compare:--picture|diagnose:--picture) _files; return ;;
  params:--picture) _files; return ;;
  bench:--picture) _files; return ;;
  *:--output) _files; return ;;
  *:--trace) _files; return ;;
  *:--save-case) _files; return ;;
  *:--path) compadd -- $(echo '
      auto fast blas exact'); return ;;
  *:--isa) compadd -- $(echo '
      auto avx512_bf16 avx512 avx2 neon scalar'); return ;;
  *:--threads) _message 'N'; return ;;
  *:--jobs) _message 'N'; return ;;
  esac
  case $words[2] in
  forward)
    options=(
      '--d-model:''width of the model'
      '--heads:''query heads [with --weights: as its configuration states]'
      '--kv-heads:''key/value heads; must divide heads [heads]'
      '--d-k:''width of one head of Q and K [d_model / heads]'
      '--d-v:''width of one head of V [d_k]'
      '--d-q:''width of the query input [d_model]'
      '--kdim:''width of the key input [d_model]'
      '--vdim:''width of the value input [kdim]'
      '--d-out:''width of the output [d_model]'
      '--bias:''with b_Q, b_K, b_V and b_O (the default)'
      '--no-bias:''without these biases'
      '--batch:''batch rows; params, bench with a model: sequences of '\
'the pass that --seq counts or measures'
      '--seq:''queries in each batch row'
      '--kv-seq:''keys in each batch row: cross-attention [self-attention: '\
'as many as queries]'
      '--merged-qk:''one matrix per head in place of W_Q and W_K: its size, '\
'its rank, its scores'
      '--preset:''a model that is built in: gpt2, bert-base-uncased, llama-2-70b, '\
'...; "list" lists them'
      '--config:''the model that a config.json describes'
      '--dtype:''type the weights are stored in; quantised matrices of '\
'a file stay as they are if this is not given'
      '--cache-dtype:''type of the key/value cache [bench, where it decodes: '\
'that of --precision; forward: no cache]'
      '--weights:''weights of a public checkpoint or with mha'\''s own names; '\
'needs --heads or a config.json beside it'
      '--layer:''which attention layer of the file or model: the beginning '\
'of its tensors'\'' names'
      '--orientation:''order of the axes of the file'\''s matrices, where names '\
'and shapes do not show it'
      '--input:''query input, (B, T, d_q) or (T, d_q); keys and values '\
'too unless given'
      '--key-input:''key input; values too unless given'
      '--value-input:''value input'
      '--seed:''seed of random weights and inputs'
      '--causal:''query i sees key j only if j <= i + offset'
      '--position-offset:''position of query 0 for causal, window and rope [0]'
      '--key-offset:''the keys are a part of a sequence: position of key 0 '\
'for causal, window, lengths, ALiBi and rope'
      '--window:''a query at position p sees keys p-L to p+R; -1 is open'
      '--scale:''factor on Q K^T [1/sqrt(d_k)]'
      '--softcap:''scores become X tanh(score / X) before keys are hidden; '\
'0 is off'
      '--rope:''rotate Q and K by position, in this pairing'
      '--rope-dim:''features of each head rotated [d_k]'
      '--rope-base:''base of the rotation'\''s angles [10000]'
      '--mask:''mask, broadcast from the right to (B, h, T_q, S)'
      '--mask-kind:''numbers to add, or booleans: true keeps a key, or true '\
'hides it [additive for numbers]'
      '--lengths:''number of keys of each batch row; later keys are hidden'
      '--empty-rows:''weights of a query that sees no key'
      '--hidden-values:''a hidden key'\''s value row: left out, or times 0, which '\
'keeps its NaN'
      '--alibi:''adds -slope (distance from query to key) to the scores, '\
'with the slopes of Press et al.'
      '--sigmoid:''weights are 1 / (1 + exp(-(score + X))), each key by '\
'itself, in place of a softmax'
      '--sinks:''one more logit of each head in the denominator of its '\
'softmax, (heads)'
      '--cu-seqlens:''starts of the sequences packed into one batch row, and '\
'the end of the last one'
      '--precision:''inputs, projections, weights of values, output are rounded '\
'to it; f16: --path exact, bf16: or --dtype bf16'
      '--stage:''the only stage to judge, show, or write with --trace; '\
'with --expected: the stage in its file [the output]'
      '--head:''the head whose attention is shown, counted from 0 [the '\
'first ones]'
      '--query:''the query whose attention is shown, counted from 0 [forward: '\
'a few; show: all]'
      '--picture:''writes a picture: .html, a page that needs nothing but '\
'a browser; .svg; .png'
      '--output:''writes the output: .npy or .safetensors'
      '--trace:''writes every stage, by name: .safetensors'
      '--save-case:''writes inputs, weights and every stage as a case for '\
'mha check'
      '--json:''one JSON object instead of text'
      '--quiet:''no text: only files and the exit code'
      '--help:''this text'
      '--path:''how to compute (mha help paths); exact is float64 in '\
'plain loops'
      '--isa:''instruction set of the kernels [the best]'
      '--threads:''threads [all that are available]'
      '--no-pack:''no packed copies of the weights: the fast path projects '\
'by BLAS'
    ) ;;
  params)
    options=(
      '--d-model:''width of the model'
      '--heads:''query heads [with --weights: as its configuration states]'
      '--kv-heads:''key/value heads; must divide heads [heads]'
      '--d-k:''width of one head of Q and K [d_model / heads]'
      '--d-v:''width of one head of V [d_k]'
      '--d-q:''width of the query input [d_model]'
      '--kdim:''width of the key input [d_model]'
      '--vdim:''width of the value input [kdim]'
      '--d-out:''width of the output [d_model]'
      '--bias:''with b_Q, b_K, b_V and b_O (the default)'
      '--no-bias:''without these biases'
      '--batch:''batch rows; params, bench with a model: sequences of '\
'the pass that --seq counts or measures'
      '--merged-qk:''one matrix per head in place of W_Q and W_K: its size, '\
'its rank, its scores'
      '--preset:''a model that is built in: gpt2, bert-base-uncased, llama-2-70b, '\
'...; "list" lists them'
      '--config:''the model that a config.json describes'
      '--architecture:''what the configuration means: a description of your '\
'own (mha help architectures)'
      '--class:''the model'\''s head: BertForMaskedLM, MaskedLM, pooler, '\
'... [as its configuration states]'
      '--dtype:''type the weights are stored in; quantised matrices of '\
'a file stay as they are if this is not given'
      '--seq:''tokens in a sequence: shows the cost of a model'\''s forward '\
'pass and key/value cache; bench: [512]'
      '--encoder-seq:''beside --seq: tokens that the encoder reads, to which '\
'the decoder attends [of the configuration, or --seq]'
      '--ranks:''processes that share the attention of a model over --seq '\
'tokens [4096]: what each holds and sends'
      '--machine:''beside --ranks, the time: GFLOP/s of a rank, GB/s read, '\
'us of a message, GB/s of a link; node'\''s cores, ranks'
      '--weights:''weights of a public checkpoint or with mha'\''s own names; '\
'needs --heads or a config.json beside it'
      '--group:''show the sums of a model or file by this property'
      '--depth:''show the sums by the first N components of the names'
      '--only:''show only this part of a model'
      '--sort:''order of the rows [the checkpoint'\''s]'
      '--all:''every row of a model: blocks are not folded'
      '--per-head:''also show each head'\''s slice of every weight'
      '--format:''how the table is written'
      '--picture:''draws who has how many parameters, each storage once: '\
'.svg, .html'
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
      '--no-bias:''without these biases'
      '--batch:''batch rows; params, bench with a model: sequences of '\
'the pass that --seq counts or measures'
      '--seq:''queries in each batch row'
      '--kv-seq:''keys in each batch row: cross-attention [self-attention: '\
'as many as queries]'
      '--preset:''a model that is built in: gpt2, bert-base-uncased, llama-2-70b, '\
'...; "list" lists them'
      '--config:''the model that a config.json describes'
      '--architecture:''what the configuration means: a description of your '\
'own (mha help architectures)'
      '--class:''the model'\''s head: BertForMaskedLM, MaskedLM, pooler, '\
'... [as its configuration states]'
      '--dtype:''type the weights are stored in; quantised matrices of '\
'a file stay as they are if this is not given'
      '--run:''also runs the attention layers of the model'
      '--seed:''seed of random weights and inputs'
      '--causal:''query i sees key j only if j <= i + offset'
      '--json:''one JSON object instead of text'
      '--quiet:''no text: only files and the exit code'
      '--help:''this text'
      '--path:''how to compute (mha help paths); exact is float64 in '\
'plain loops'
      '--isa:''instruction set of the kernels [the best]'
      '--threads:''threads [all that are available]'
    ) ;;
  show)
    options=(
      '--d-model:''width of the model'
      '--heads:''query heads [with --weights: as its configuration states]'
      '--kv-heads:''key/value heads; must divide heads [heads]'
      '--d-k:''width of one head of Q and K [d_model / heads]'
      '--d-v:''width of one head of V [d_k]'
      '--d-q:''width of the query input [d_model]'
      '--kdim:''width of the key input [d_model]'
      '--vdim:''width of the value input [kdim]'
      '--d-out:''width of the output [d_model]'
      '--bias:''with b_Q, b_K, b_V and b_O (the default)'
      '--no-bias:''without these biases'
      '--batch:''the batch row or sequence that is shown, counted from '\
'0 [all]'
      '--seq:''queries in each batch row'
      '--kv-seq:''keys in each batch row: cross-attention [self-attention: '\
'as many as queries]'
      '--preset:''a model that is built in: gpt2, bert-base-uncased, llama-2-70b, '\
'...; "list" lists them'
      '--config:''the model that a config.json describes'
      '--dtype:''type the weights are stored in; quantised matrices of '\
'a file stay as they are if this is not given'
      '--weights:''weights of a public checkpoint or with mha'\''s own names; '\
'needs --heads or a config.json beside it'
      '--layer:''which attention layer of the file or model: the beginning '\
'of its tensors'\'' names'
      '--orientation:''order of the axes of the file'\''s matrices, where names '\
'and shapes do not show it'
      '--input:''query input, (B, T, d_q) or (T, d_q); keys and values '\
'too unless given'
      '--key-input:''key input; values too unless given'
      '--value-input:''value input'
      '--seed:''seed of random weights and inputs'
      '--causal:''query i sees key j only if j <= i + offset'
      '--position-offset:''position of query 0 for causal, window and rope [0]'
      '--key-offset:''the keys are a part of a sequence: position of key 0 '\
'for causal, window, lengths, ALiBi and rope'
      '--window:''a query at position p sees keys p-L to p+R; -1 is open'
      '--scale:''factor on Q K^T [1/sqrt(d_k)]'
      '--softcap:''scores become X tanh(score / X) before keys are hidden; '\
'0 is off'
      '--rope:''rotate Q and K by position, in this pairing'
      '--rope-dim:''features of each head rotated [d_k]'
      '--rope-base:''base of the rotation'\''s angles [10000]'
      '--mask:''mask, broadcast from the right to (B, h, T_q, S)'
      '--mask-kind:''numbers to add, or booleans: true keeps a key, or true '\
'hides it [additive for numbers]'
      '--lengths:''number of keys of each batch row; later keys are hidden'
      '--empty-rows:''weights of a query that sees no key'
      '--hidden-values:''a hidden key'\''s value row: left out, or times 0, which '\
'keeps its NaN'
      '--alibi:''adds -slope (distance from query to key) to the scores, '\
'with the slopes of Press et al.'
      '--sigmoid:''weights are 1 / (1 + exp(-(score + X))), each key by '\
'itself, in place of a softmax'
      '--sinks:''one more logit of each head in the denominator of its '\
'softmax, (heads)'
      '--cu-seqlens:''starts of the sequences packed into one batch row, and '\
'the end of the last one'
      '--stage:''the only stage to judge, show, or write with --trace; '\
'with --expected: the stage in its file [the output]'
      '--head:''the head whose attention is shown, counted from 0 [the '\
'first ones]'
      '--query:''the query whose attention is shown, counted from 0 [forward: '\
'a few; show: all]'
      '--rows:''the queries A to B - 1 alone'
      '--keys:''the keys A to B - 1 alone'
      '--tokens:''the names of the tokens: a line for each, or a JSON '\
'array; or a GGUF, whose vocabulary names recorded ids'
      '--picture:''writes a picture: .html, a page that needs nothing but '\
'a browser; .svg; .png'
      '--log:''colours stand for six decades of weights: .svg, .png, '\
'terminal'
      '--json:''one JSON object instead of text'
      '--quiet:''no text: only files and the exit code'
      '--help:''this text'
      '--path:''how to compute (mha help paths); exact is float64 in '\
'plain loops'
      '--isa:''instruction set of the kernels [the best]'
      '--threads:''threads [all that are available]'
    ) ;;
  check)
    options=(
      '--heads:''query heads [with --weights: as its configuration states]'
      '--kv-heads:''key/value heads; must divide heads [heads]'
      '--d-k:''width of one head of Q and K [d_model / heads]'
      '--config:''the model that a config.json describes'
      '--weights:''weights of a public checkpoint or with mha'\''s own names; '\
'needs --heads or a config.json beside it'
      '--layer:''which attention layer of the file or model: the beginning '\
'of its tensors'\'' names'
      '--orientation:''order of the axes of the file'\''s matrices, where names '\
'and shapes do not show it'
      '--input:''query input, (B, T, d_q) or (T, d_q); keys and values '\
'too unless given'
      '--key-input:''key input; values too unless given'
      '--value-input:''value input'
      '--causal:''query i sees key j only if j <= i + offset'
      '--position-offset:''position of query 0 for causal, window and rope [0]'
      '--key-offset:''the keys are a part of a sequence: position of key 0 '\
'for causal, window, lengths, ALiBi and rope'
      '--window:''a query at position p sees keys p-L to p+R; -1 is open'
      '--scale:''factor on Q K^T [1/sqrt(d_k)]'
      '--softcap:''scores become X tanh(score / X) before keys are hidden; '\
'0 is off'
      '--rope:''rotate Q and K by position, in this pairing'
      '--rope-dim:''features of each head rotated [d_k]'
      '--rope-base:''base of the rotation'\''s angles [10000]'
      '--mask:''mask, broadcast from the right to (B, h, T_q, S)'
      '--mask-kind:''numbers to add, or booleans: true keeps a key, or true '\
'hides it [additive for numbers]'
      '--lengths:''number of keys of each batch row; later keys are hidden'
      '--empty-rows:''weights of a query that sees no key'
      '--hidden-values:''a hidden key'\''s value row: left out, or times 0, which '\
'keeps its NaN'
      '--alibi:''adds -slope (distance from query to key) to the scores, '\
'with the slopes of Press et al.'
      '--sigmoid:''weights are 1 / (1 + exp(-(score + X))), each key by '\
'itself, in place of a softmax'
      '--sinks:''one more logit of each head in the denominator of its '\
'softmax, (heads)'
      '--cu-seqlens:''starts of the sequences packed into one batch row, and '\
'the end of the last one'
      '--expected:''a recorded output for --weights and --input, in place '\
'of a case file'
      '--precision:''type in which the tested implementation computes: rounding '\
'to it is no mistake; a case says so itself'
      '--stage:''the only stage to judge, show, or write with --trace; '\
'with --expected: the stage in its file [the output]'
      '--picture:''writes a picture: .html, a page that needs nothing but '\
'a browser; .svg; .png'
      '--json:''one JSON object instead of text'
      '--quiet:''no text: only files and the exit code'
      '--help:''this text'
      '--path:''how to compute (mha help paths); exact is float64 in '\
'plain loops'
      '--isa:''instruction set of the kernels [the best]'
      '--threads:''threads [all that are available]'
      '--jobs:''cases judged at a time; with more than one, each case '\
'runs on one thread unless --threads says otherwise'
    ) ;;
  compare)
    options=(
      '--dtype:''what rounding costs: B'\''s attention layers are read with '\
'their matrices in this type, and compared with A'\''s'
      '--rtol:''a and b agree when |a - b| <= atol + rtol |b|; power: '\
'[what mha check allows]'
      '--atol:''see --rtol'
      '--picture:''writes a picture: .html, a page that needs nothing but '\
'a browser; .svg; .png'
      '--json:''one JSON object instead of text'
      '--quiet:''no text: only files and the exit code'
      '--help:''this text'
    ) ;;
  diagnose)
    options=(
      '--heads:''query heads [with --weights: as its configuration states]'
      '--kv-heads:''key/value heads; must divide heads [heads]'
      '--d-k:''width of one head of Q and K [d_model / heads]'
      '--config:''the model that a config.json describes'
      '--weights:''weights of a public checkpoint or with mha'\''s own names; '\
'needs --heads or a config.json beside it'
      '--layer:''which attention layer of the file or model: the beginning '\
'of its tensors'\'' names'
      '--orientation:''order of the axes of the file'\''s matrices, where names '\
'and shapes do not show it'
      '--input:''query input, (B, T, d_q) or (T, d_q); keys and values '\
'too unless given'
      '--key-input:''key input; values too unless given'
      '--value-input:''value input'
      '--causal:''query i sees key j only if j <= i + offset'
      '--position-offset:''position of query 0 for causal, window and rope [0]'
      '--key-offset:''the keys are a part of a sequence: position of key 0 '\
'for causal, window, lengths, ALiBi and rope'
      '--window:''a query at position p sees keys p-L to p+R; -1 is open'
      '--scale:''factor on Q K^T [1/sqrt(d_k)]'
      '--softcap:''scores become X tanh(score / X) before keys are hidden; '\
'0 is off'
      '--rope:''rotate Q and K by position, in this pairing'
      '--rope-dim:''features of each head rotated [d_k]'
      '--rope-base:''base of the rotation'\''s angles [10000]'
      '--mask:''mask, broadcast from the right to (B, h, T_q, S)'
      '--mask-kind:''numbers to add, or booleans: true keeps a key, or true '\
'hides it [additive for numbers]'
      '--lengths:''number of keys of each batch row; later keys are hidden'
      '--empty-rows:''weights of a query that sees no key'
      '--hidden-values:''a hidden key'\''s value row: left out, or times 0, which '\
'keeps its NaN'
      '--alibi:''adds -slope (distance from query to key) to the scores, '\
'with the slopes of Press et al.'
      '--sigmoid:''weights are 1 / (1 + exp(-(score + X))), each key by '\
'itself, in place of a softmax'
      '--sinks:''one more logit of each head in the denominator of its '\
'softmax, (heads)'
      '--cu-seqlens:''starts of the sequences packed into one batch row, and '\
'the end of the last one'
      '--expected:''a recorded output for --weights and --input, in place '\
'of a case file'
      '--precision:''type in which the tested implementation computes: rounding '\
'to it is no mistake; a case says so itself'
      '--tensor:''the tensor to explain: expected.output, or the name '\
'of a stage [the output]'
      '--stage:''the only stage to judge, show, or write with --trace; '\
'with --expected: the stage in its file [the output]'
      '--picture:''writes a picture: .html, a page that needs nothing but '\
'a browser; .svg; .png'
      '--json:''one JSON object instead of text'
      '--quiet:''no text: only files and the exit code'
      '--help:''this text'
      '--threads:''threads [all that are available]'
    ) ;;
  power)
    options=(
      '--d-model:''width of the model'
      '--heads:''query heads [with --weights: as its configuration states]'
      '--kv-heads:''key/value heads; must divide heads [heads]'
      '--d-k:''width of one head of Q and K [d_model / heads]'
      '--d-v:''width of one head of V [d_k]'
      '--d-q:''width of the query input [d_model]'
      '--kdim:''width of the key input [d_model]'
      '--vdim:''width of the value input [kdim]'
      '--d-out:''width of the output [d_model]'
      '--bias:''with b_Q, b_K, b_V and b_O (the default)'
      '--no-bias:''without these biases'
      '--batch:''batch rows; params, bench with a model: sequences of '\
'the pass that --seq counts or measures'
      '--seq:''queries in each batch row'
      '--kv-seq:''keys in each batch row: cross-attention [self-attention: '\
'as many as queries]'
      '--preset:''a model that is built in: gpt2, bert-base-uncased, llama-2-70b, '\
'...; "list" lists them'
      '--config:''the model that a config.json describes'
      '--dtype:''type the weights are stored in; quantised matrices of '\
'a file stay as they are if this is not given'
      '--weights:''weights of a public checkpoint or with mha'\''s own names; '\
'needs --heads or a config.json beside it'
      '--layer:''which attention layer of the file or model: the beginning '\
'of its tensors'\'' names'
      '--orientation:''order of the axes of the file'\''s matrices, where names '\
'and shapes do not show it'
      '--input:''query input, (B, T, d_q) or (T, d_q); keys and values '\
'too unless given'
      '--key-input:''key input; values too unless given'
      '--value-input:''value input'
      '--seed:''seed of random weights and inputs'
      '--causal:''query i sees key j only if j <= i + offset'
      '--position-offset:''position of query 0 for causal, window and rope [0]'
      '--key-offset:''the keys are a part of a sequence: position of key 0 '\
'for causal, window, lengths, ALiBi and rope'
      '--window:''a query at position p sees keys p-L to p+R; -1 is open'
      '--scale:''factor on Q K^T [1/sqrt(d_k)]'
      '--softcap:''scores become X tanh(score / X) before keys are hidden; '\
'0 is off'
      '--rope:''rotate Q and K by position, in this pairing'
      '--rope-dim:''features of each head rotated [d_k]'
      '--rope-base:''base of the rotation'\''s angles [10000]'
      '--mask:''mask, broadcast from the right to (B, h, T_q, S)'
      '--mask-kind:''numbers to add, or booleans: true keeps a key, or true '\
'hides it [additive for numbers]'
      '--lengths:''number of keys of each batch row; later keys are hidden'
      '--empty-rows:''weights of a query that sees no key'
      '--hidden-values:''a hidden key'\''s value row: left out, or times 0, which '\
'keeps its NaN'
      '--alibi:''adds -slope (distance from query to key) to the scores, '\
'with the slopes of Press et al.'
      '--sigmoid:''weights are 1 / (1 + exp(-(score + X))), each key by '\
'itself, in place of a softmax'
      '--sinks:''one more logit of each head in the denominator of its '\
'softmax, (heads)'
      '--cu-seqlens:''starts of the sequences packed into one batch row, and '\
'the end of the last one'
      '--rtol:''a and b agree when |a - b| <= atol + rtol |b|; power: '\
'[what mha check allows]'
      '--atol:''see --rtol'
      '--nmse:''the test accepts a normalised mean squared error up '\
'to X, in place of --rtol and --atol'
      '--cosine:''the test accepts a cosine similarity from X on, in place '\
'of --rtol and --atol'
      '--precision:''type in which the tested implementation computes: rounding '\
'to it is no mistake; a case says so itself'
      '--suggest:''writes a case with inputs that show as much as possible, '\
'for the given sizes and options'
      '--with:''what the suggested inputs have, with commas between'
      '--kind:''suggest a whole layer, or query, key and value for each '\
'head'
      '--stage:''the only stage to judge, show, or write with --trace; '\
'with --expected: the stage in its file [the output]'
      '--json:''one JSON object instead of text'
      '--quiet:''no text: only files and the exit code'
      '--help:''this text'
      '--threads:''threads [all that are available]'
    ) ;;
  claims)
    options=(
      '--json:''one JSON object instead of text'
      '--quiet:''no text: only files and the exit code'
      '--help:''this text'
    ) ;;
  bench)
    options=(
      '--batch:''batch rows; params, bench with a model: sequences of '\
'the pass that --seq counts or measures'
      '--preset:''a model that is built in: gpt2, bert-base-uncased, llama-2-70b, '\
'...; "list" lists them'
      '--config:''the model that a config.json describes'
      '--architecture:''what the configuration means: a description of your '\
'own (mha help architectures)'
      '--dtype:''type the weights are stored in [that of --precision]'
      '--cache-dtype:''type of the key/value cache [bench, where it decodes: '\
'that of --precision; forward: no cache]'
      '--seq:''tokens in a sequence: shows the cost of a model'\''s forward '\
'pass and key/value cache; bench: [512]'
      '--precision:''inputs, projections, weights of values, output are rounded '\
'to it; f16: --path exact, bf16: or --dtype bf16'
      '--shape:''what to measure; may be given several times; "list" '\
'lists the names [a standard set]'
      '--part:''the whole layer; attention alone, with Q, K, V given; '\
'the projections alone; both: the first two'
      '--rounds:''number of rounds; each round runs all paths and thread '\
'counts'
      '--seconds:''time after which a part of a shape gets no third or '\
'later round'
      '--csv:''comma-separated values'
      '--picture:''draws a roofline, and every path beside the machine'\''s '\
'limit: .svg, .html'
      '--json:''one JSON object instead of text'
      '--quiet:''no text: only files and the exit code'
      '--help:''this text'
      '--path:''how to compute (mha help paths); exact is float64 in '\
'plain loops'
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
  show) _files; return ;;
  check) _files; return ;;
  compare) _files; return ;;
  diagnose) _files; return ;;
  power) _files; return ;;
  esac
  _describe -o -t options option options
}
# Run by zsh as the function _mha of a file in $fpath, or read by: source <(mha completion zsh)
if [ "$funcstack[1]" = _mha ]; then _mha "$@"; else compdef _mha mha; fi
