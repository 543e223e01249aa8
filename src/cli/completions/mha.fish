# fish completion of mha, written by "mha completion fish"
function __mha_runs --description 'the command of mha is one of these; none: there is no command yet'
    set --local words (commandline -opc)
    if test (count $argv) = 0
        test (count $words) = 1
    else
        test (count $words) -gt 1; and contains -- $words[2] $argv
    end
end
complete -c mha -f
complete -c mha -n __mha_runs -a 'help --help --version'
complete -c mha -n '__mha_runs help' -a 'forward params heads show check compare diagnose power claims bench info completion
      inert storage derived stage paths masks ranks architectures case variants'
complete -c mha -n '__mha_runs completion' -a 'bash zsh fish'
complete -c mha -n __mha_runs -a forward -d 'run a layer: random inputs, or real weights and inputs'
complete -c mha -n __mha_runs -a params -d 'the parameter table of a layer, counted from what was '\
'allocated'
complete -c mha -n __mha_runs -a heads -d 'one width, many head counts: allocate, run, compare '\
'the totals'
complete -c mha -n __mha_runs -a show -d 'what heads look at, in numbers and as a page; from cases, '\
'traces or a run'
complete -c mha -n '__mha_runs show' -F
complete -c mha -n __mha_runs -a check -d 'judge case files: compare every stage with the expected '\
'one'
complete -c mha -n '__mha_runs check' -F
complete -c mha -n __mha_runs -a compare -d 'compare two tensors, or two files of tensors; of quantised '\
'ones, what that cost'
complete -c mha -n '__mha_runs compare' -F
complete -c mha -n __mha_runs -a diagnose -d 'find the named variant of attention that produces the '\
'output recorded in a case file'
complete -c mha -n '__mha_runs diagnose' -F
complete -c mha -n __mha_runs -a power -d 'which wrong attentions a test with these inputs and '\
'this tolerance would accept'
complete -c mha -n '__mha_runs power' -F
complete -c mha -n __mha_runs -a claims -d 'published statements about parameter counts, compared '\
'with what is allocated'
complete -c mha -n __mha_runs -a bench -d 'throughput of one layer, in tokens/s and GFLOP/s, against '\
'the machine'\''s limits'
complete -c mha -n __mha_runs -a info -d 'version, instruction set, BLAS, threads'
complete -c mha -n __mha_runs -a completion -d 'completion script for a shell: bash, zsh or fish'
complete -c mha -n '__mha_runs forward params heads show power' -l d-model -x \
    -d 'width of the model'
complete -c mha -n '__mha_runs forward params show check diagnose power' -l heads -x \
    -d 'query heads [with --weights: as its configuration states]'
complete -c mha -n '__mha_runs heads' -l heads -x \
    -d 'head counts to compare [those of 1,2,3,4,6,8,12 that '\
'divide d_model]'
complete -c mha -n '__mha_runs forward params heads show check diagnose power' -l kv-heads -x \
    -d 'key/value heads; must divide heads [heads]'
complete -c mha -n '__mha_runs forward params heads show check diagnose power' -l d-k -x \
    -d 'width of one head of Q and K [d_model / heads]'
complete -c mha -n '__mha_runs forward params heads show power' -l d-v -x \
    -d 'width of one head of V [d_k]'
complete -c mha -n '__mha_runs forward params heads show power' -l d-q -x \
    -d 'width of the query input [d_model]'
complete -c mha -n '__mha_runs forward params heads show power' -l kdim -x \
    -d 'width of the key input [d_model]'
complete -c mha -n '__mha_runs forward params heads show power' -l vdim -x \
    -d 'width of the value input [kdim]'
complete -c mha -n '__mha_runs forward params heads show power' -l d-out -x \
    -d 'width of the output [d_model]'
complete -c mha -n '__mha_runs forward params heads show power' -l bias \
    -d 'with b_Q, b_K, b_V and b_O (the default)'
complete -c mha -n '__mha_runs forward params heads show power' -l no-bias \
    -d 'without these biases'
complete -c mha -n '__mha_runs forward params heads power bench' -l batch -x \
    -d 'batch rows; params, bench with a model: sequences of '\
'the pass that --seq counts or measures'
complete -c mha -n '__mha_runs show' -l batch -x \
    -d 'the batch row or sequence that is shown, counted from '\
'0 [all]'
complete -c mha -n '__mha_runs forward heads show power' -l seq -x \
    -d 'queries in each batch row'
complete -c mha -n '__mha_runs forward heads show power' -l kv-seq -x \
    -d 'keys in each batch row: cross-attention [self-attention: '\
'as many as queries]'
complete -c mha -n '__mha_runs forward params' -l merged-qk \
    -d 'one matrix per head in place of W_Q and W_K: its size, '\
'its rank, its scores'
complete -c mha -n '__mha_runs forward params heads show power bench' -l preset -x \
    -a '
      list albert-base-v2 beit-base-patch16-224 bert-base-cased bert-base-uncased bert-large-uncased
      clip-vit-base-patch32 deberta-base deberta-v3-base deepseek-v3 distilbert-base-uncased
      falcon-7b gemma-2-2b gemma-2b gemma-7b gpt2 gpt2-large gpt2-medium gpt2-xl llama-13b
      llama-2-70b llama-2-7b llama-3-70b llama-3-8b llama-7b mistral-7b-v0.1 mistral-7b-v0.3
      mistral-nemo-12b mixtral-8x7b-v0.1 modernbert-base mpnet-base phi-3-mini-4k qwen2-0.5b qwen2-7b
      qwen3-0.6b qwen3-8b roberta-30522 roberta-base roberta-large swin-tiny-patch4-window7-224
      swinv2-tiny-patch4-window8-256 t5-11b t5-3b t5-base t5-large t5-small transformer-base
      transformer-big umt5-small vit-base-patch16-224 whisper-large-v3' \
    -d 'a model that is built in: gpt2, bert-base-uncased, llama-2-70b, '\
'...; "list" lists them'
complete -c mha -n '__mha_runs forward params heads show check diagnose power bench' -l config -r -F \
    -d 'the model that a config.json describes'
complete -c mha -n '__mha_runs params heads bench' -l architecture -r -F \
    -d 'what the configuration means: a description of your '\
'own (mha help architectures)'
complete -c mha -n '__mha_runs params heads' -l class -x \
    -d 'the model'\''s head: BertForMaskedLM, MaskedLM, pooler, '\
'... [as its configuration states]'
complete -c mha -n '__mha_runs forward params heads show power' -l dtype -x \
    -a '
      f32 f64 f16 bf16 q8_0 q4_0 q4_1 q5_0 q5_1 q2_k q3_k q4_k q5_k q6_k iq4_nl iq4_xs mxfp4
      f8_e4m3_scaled f8_e5m2_scaled' \
    -d 'type the weights are stored in; quantised matrices of '\
'a file stay as they are if this is not given'
complete -c mha -n '__mha_runs bench' -l dtype -x \
    -a '
      f32 f16 bf16 q8_0 q4_0 q4_1 q5_0 q5_1 q2_k q3_k q4_k q5_k q6_k iq4_nl iq4_xs mxfp4
      f8_e4m3_scaled f8_e5m2_scaled' \
    -d 'type the weights are stored in [that of --precision]'
complete -c mha -n '__mha_runs compare' -l dtype -x \
    -a '
      q8_0 q4_0' \
    -d 'what rounding costs: B'\''s attention layers are read with '\
'their matrices in this type, and compared with A'\''s'
complete -c mha -n '__mha_runs forward bench' -l cache-dtype -x \
    -a '
      f32 f16 bf16 i8' \
    -d 'type of the key/value cache [bench, where it decodes: '\
'that of --precision; forward: no cache]'
complete -c mha -n '__mha_runs params bench' -l seq -x \
    -d 'tokens in a sequence: shows the cost of a model'\''s forward '\
'pass and key/value cache; bench: [512]'
complete -c mha -n '__mha_runs params' -l encoder-seq -x \
    -d 'beside --seq: tokens that the encoder reads, to which '\
'the decoder attends [of the configuration, or --seq]'
complete -c mha -n '__mha_runs params' -l ranks -x \
    -d 'processes that share the attention of a model over --seq '\
'tokens [4096]: what each holds and sends'
complete -c mha -n '__mha_runs params' -l machine -x \
    -d 'beside --ranks, the time: GFLOP/s of a rank, GB/s read, '\
'us of a message, GB/s of a link; node'\''s cores, ranks'
complete -c mha -n '__mha_runs heads' -l run \
    -d 'also runs the attention layers of the model'
complete -c mha -n '__mha_runs forward params show check diagnose power' -l weights -r -F \
    -d 'weights of a public checkpoint or with mha'\''s own names; '\
'needs --heads or a config.json beside it'
complete -c mha -n '__mha_runs forward show check diagnose power' -l layer -x \
    -d 'which attention layer of the file or model: the beginning '\
'of its tensors'\'' names'
complete -c mha -n '__mha_runs forward show check diagnose power' -l orientation -x \
    -a '
      in-out out-in' \
    -d 'order of the axes of the file'\''s matrices, where names '\
'and shapes do not show it'
complete -c mha -n '__mha_runs forward show check diagnose power' -l input -r -F \
    -d 'query input, (B, T, d_q) or (T, d_q); keys and values '\
'too unless given'
complete -c mha -n '__mha_runs forward show check diagnose power' -l key-input -r -F \
    -d 'key input; values too unless given'
complete -c mha -n '__mha_runs forward show check diagnose power' -l value-input -r -F \
    -d 'value input'
complete -c mha -n '__mha_runs forward heads show power' -l seed -x \
    -d 'seed of random weights and inputs'
complete -c mha -n '__mha_runs forward heads show check diagnose power' -l causal \
    -d 'query i sees key j only if j <= i + offset'
complete -c mha -n '__mha_runs forward show check diagnose power' -l position-offset -x \
    -d 'position of query 0 for causal, window and rope [0]'
complete -c mha -n '__mha_runs forward show check diagnose power' -l key-offset -x \
    -d 'the keys are a part of a sequence: position of key 0 '\
'for causal, window, lengths, ALiBi and rope'
complete -c mha -n '__mha_runs forward show check diagnose power' -l window -x \
    -d 'a query at position p sees keys p-L to p+R; -1 is open'
complete -c mha -n '__mha_runs forward show check diagnose power' -l scale -x \
    -d 'factor on Q K^T [1/sqrt(d_k)]'
complete -c mha -n '__mha_runs forward show check diagnose power' -l softcap -x \
    -d 'scores become X tanh(score / X) before keys are hidden; '\
'0 is off'
complete -c mha -n '__mha_runs forward show check diagnose power' -l rope -x \
    -a '
      interleaved half' \
    -d 'rotate Q and K by position, in this pairing'
complete -c mha -n '__mha_runs forward show check diagnose power' -l rope-dim -x \
    -d 'features of each head rotated [d_k]'
complete -c mha -n '__mha_runs forward show check diagnose power' -l rope-base -x \
    -d 'base of the rotation'\''s angles [10000]'
complete -c mha -n '__mha_runs forward show check diagnose power' -l mask -r -F \
    -d 'mask, broadcast from the right to (B, h, T_q, S)'
complete -c mha -n '__mha_runs forward show check diagnose power' -l mask-kind -x \
    -a '
      additive keeps hides' \
    -d 'numbers to add, or booleans: true keeps a key, or true '\
'hides it [additive for numbers]'
complete -c mha -n '__mha_runs forward show check diagnose power' -l lengths -x \
    -d 'number of keys of each batch row; later keys are hidden'
complete -c mha -n '__mha_runs forward show check diagnose power' -l empty-rows -x \
    -a '
      zero nan' \
    -d 'weights of a query that sees no key'
complete -c mha -n '__mha_runs forward show check diagnose power' -l hidden-values -x \
    -a '
      ignore propagate' \
    -d 'a hidden key'\''s value row: left out, or times 0, which '\
'keeps its NaN'
complete -c mha -n '__mha_runs forward show check diagnose power' -l alibi \
    -d 'adds -slope (distance from query to key) to the scores, '\
'with the slopes of Press et al.'
complete -c mha -n '__mha_runs forward show check diagnose power' -l sigmoid -x \
    -d 'weights are 1 / (1 + exp(-(score + X))), each key by '\
'itself, in place of a softmax'
complete -c mha -n '__mha_runs forward show check diagnose power' -l sinks -r -F \
    -d 'one more logit of each head in the denominator of its '\
'softmax, (heads)'
complete -c mha -n '__mha_runs forward show check diagnose power' -l cu-seqlens -x \
    -d 'starts of the sequences packed into one batch row, and '\
'the end of the last one'
complete -c mha -n '__mha_runs check diagnose' -l expected -r -F \
    -d 'a recorded output for --weights and --input, in place '\
'of a case file'
complete -c mha -n '__mha_runs compare power' -l rtol -x \
    -d 'a and b agree when |a - b| <= atol + rtol |b|; power: '\
'[what mha check allows]'
complete -c mha -n '__mha_runs compare power' -l atol -x \
    -d 'see --rtol'
complete -c mha -n '__mha_runs power' -l nmse -x \
    -d 'the test accepts a normalised mean squared error up '\
'to X, in place of --rtol and --atol'
complete -c mha -n '__mha_runs power' -l cosine -x \
    -d 'the test accepts a cosine similarity from X on, in place '\
'of --rtol and --atol'
complete -c mha -n '__mha_runs check diagnose power' -l precision -x \
    -a '
      f32 f16 bf16' \
    -d 'type in which the tested implementation computes: rounding '\
'to it is no mistake; a case says so itself'
complete -c mha -n '__mha_runs forward bench' -l precision -x \
    -a '
      f32 f16 bf16' \
    -d 'inputs, projections, weights of values, output are rounded '\
'to it; f16: --path exact, bf16: or --dtype bf16'
complete -c mha -n '__mha_runs power' -l suggest -r -F \
    -d 'writes a case with inputs that show as much as possible, '\
'for the given sizes and options'
complete -c mha -n '__mha_runs power' -l with -x \
    -d 'what the suggested inputs have, with commas between'
complete -c mha -n '__mha_runs power' -l kind -x \
    -a '
      mha sdpa' \
    -d 'suggest a whole layer, or query, key and value for each '\
'head'
complete -c mha -n '__mha_runs bench' -l shape -x \
    -a '
      list tiny16 bert1x128 bert8x128 bert1x512 bert8x512 gpt2_1024 llama512 llama3_1024 long8192
      cross decode2048 decode8x4096 vit197 llama2048 long16384 width40 width80 width96 width128
      width256 tiny8 bert1x127 decode2047 few4x2047 few8x127 few8x2047 mask2048 docs8x256' \
    -d 'what to measure; may be given several times; "list" '\
'lists the names [a standard set]'
complete -c mha -n '__mha_runs bench' -l part -x \
    -a '
      all both layer core proj' \
    -d 'the whole layer; attention alone, with Q, K, V given; '\
'the projections alone; both: the first two'
complete -c mha -n '__mha_runs bench' -l rounds -x \
    -d 'number of rounds; each round runs all paths and thread '\
'counts'
complete -c mha -n '__mha_runs bench' -l seconds -x \
    -d 'time after which a part of a shape gets no third or '\
'later round'
complete -c mha -n '__mha_runs bench' -l csv \
    -d 'comma-separated values'
complete -c mha -n '__mha_runs diagnose' -l tensor -x \
    -d 'the tensor to explain: expected.output, or the name '\
'of a stage [the output]'
complete -c mha -n '__mha_runs forward show check diagnose power' -l stage -x \
    -a '
      q k v q_rot k_rot scores capped masked weights weights_mean heads output present_key
      present_value lse q_latent kv_latent gated' \
    -d 'the only stage to judge, show, or write with --trace; '\
'with --expected: the stage in its file [the output]'
complete -c mha -n '__mha_runs params' -l group -x \
    -a '
      role layer dtype part' \
    -d 'show the sums of a model or file by this property'
complete -c mha -n '__mha_runs params' -l depth -x \
    -d 'show the sums by the first N components of the names'
complete -c mha -n '__mha_runs params' -l only -x \
    -a '
      attention ffn norm embedding head' \
    -d 'show only this part of a model'
complete -c mha -n '__mha_runs params' -l sort -x \
    -a '
      elements name' \
    -d 'order of the rows [the checkpoint'\''s]'
complete -c mha -n '__mha_runs params' -l all \
    -d 'every row of a model: blocks are not folded'
complete -c mha -n '__mha_runs params' -l per-head \
    -d 'also show each head'\''s slice of every weight'
complete -c mha -n '__mha_runs params' -l format -x \
    -a '
      table json csv markdown' \
    -d 'how the table is written'
complete -c mha -n '__mha_runs forward show' -l head -x \
    -d 'the head whose attention is shown, counted from 0 [the '\
'first ones]'
complete -c mha -n '__mha_runs forward show' -l query -x \
    -d 'the query whose attention is shown, counted from 0 [forward: '\
'a few; show: all]'
complete -c mha -n '__mha_runs show' -l rows -x \
    -d 'the queries A to B - 1 alone'
complete -c mha -n '__mha_runs show' -l keys -x \
    -d 'the keys A to B - 1 alone'
complete -c mha -n '__mha_runs show' -l tokens -r -F \
    -d 'the names of the tokens: a line for each, or a JSON '\
'array; or a GGUF, whose vocabulary names recorded ids'
complete -c mha -n '__mha_runs forward show check compare diagnose' -l picture -r -F \
    -d 'writes a picture: .html, a page that needs nothing but '\
'a browser; .svg; .png'
complete -c mha -n '__mha_runs params' -l picture -r -F \
    -d 'draws who has how many parameters, each storage once: '\
'.svg, .html'
complete -c mha -n '__mha_runs bench' -l picture -r -F \
    -d 'draws a roofline, and every path beside the machine'\''s '\
'limit: .svg, .html'
complete -c mha -n '__mha_runs show' -l log \
    -d 'colours stand for six decades of weights: .svg, .png, '\
'terminal'
complete -c mha -n '__mha_runs forward' -l output -r -F \
    -d 'writes the output: .npy or .safetensors'
complete -c mha -n '__mha_runs forward' -l trace -r -F \
    -d 'writes every stage, by name: .safetensors'
complete -c mha -n '__mha_runs forward' -l save-case -r -F \
    -d 'writes inputs, weights and every stage as a case for '\
'mha check'
complete -c mha -n '__mha_runs forward params heads show check compare diagnose power claims bench info' -l json \
    -d 'one JSON object instead of text'
complete -c mha -n '__mha_runs forward params heads show check compare diagnose power claims bench info' -l quiet \
    -d 'no text: only files and the exit code'
complete -c mha -n '__mha_runs forward params heads show check compare diagnose power claims bench info completion' -l help \
    -d 'this text'
complete -c mha -n '__mha_runs forward heads show check bench' -l path -x \
    -a '
      auto fast blas exact' \
    -d 'how to compute (mha help paths); exact is float64 in '\
'plain loops'
complete -c mha -n '__mha_runs forward heads show check bench info' -l isa -x \
    -a '
      auto avx512_bf16 avx512 avx2 neon scalar' \
    -d 'instruction set of the kernels [the best]'
complete -c mha -n '__mha_runs forward heads show check diagnose power bench' -l threads -x \
    -d 'threads [all that are available]'
complete -c mha -n '__mha_runs forward bench' -l no-pack \
    -d 'no packed copies of the weights: the fast path projects '\
'by BLAS'
complete -c mha -n '__mha_runs check' -l jobs -x \
    -d 'cases judged at a time; with more than one, each case '\
'runs on one thread unless --threads says otherwise'
