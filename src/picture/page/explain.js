/* Where each number of the walk comes from: the numbers before it, and what is done with them. What lies between two
 * stages (a row after its norm, a gate) is computed here, from what is shown. */

/* Stages of scores, and what masks do with them, have a matrix for each head. */
const BY_HEAD = new Set(['scores', 'capped', 'masked', 'weights', 'mask', 'key_padding', 'hidden_by']);

/* Arrays whose columns belong to heads, side by side: to those of queries, or to those of keys and values. */
const OF_HEADS = {
  h: ['q', 'q_normed', 'q_turned', 'q_rot', 'q_wide', 'mixed', 'heads', 'gate', 'gated', 'W_Q', 'W_KVB', 'W_G'],
  kv: ['k', 'k_normed', 'k_turned', 'k_rot', 'v', 'W_K', 'W_V'],
};
const ROPE = { none: 0, interleaved: 1, half: 2 };
const NORM = { none: 0, head: 1, row: 2, eachHead: 3 };
const NORM_KIND = { rms: 0, layer: 1, l2: 2 };

/* A layer's walk at the chosen head, query i and key j. */
function walkAt(head, query, key) {
  const { layer } = head, { walk } = layer;
  walk.made = walk.made ?? {};
  walk.means = walk.means ?? {};
  const kvHeads = layer.kvHeads, group = layer.h / kvHeads;
  const w = { walk, layer, h: head.head, kv: Math.floor(head.head / group), i: query, j: key };
  w.array = (name) => walk.arrays[name] ?? w.made(name);
  w.made = (name) => { /* what is computed here, once for all heads */
    if (!(name in walk.made)) walk.made[name] = MADE[name]?.(w);
    return walk.made[name];
  };
  w.knows = (name) => name in walk.arrays; /* its shape, if not its numbers */
  w.has = (name) => Boolean(w.array(name)?.at) || (w.knows(name) && walk.arrays[name].numbers >= 0);
  w.at = (name, r, c) => {
    const array = w.array(name);
    if (array.at) return array.at(w, r, c);
    const first = BY_HEAD.has(name) ? (w.h - walk.firstHead) * array.rows * array.columns : 0;
    return data.numbers(array.numbers)[first + r * array.columns + c];
  };
  return w;
}

/* Columns of a head in arrays whose rows hold all heads side by side. */
function sliceOf(w, name) {
  const { columns } = w.array(name);
  if (OF_HEADS.h.includes(name)) return [w.h, w.h + 1].map((n) => n * columns / w.layer.h);
  if (OF_HEADS.kv.includes(name)) return [w.kv, w.kv + 1].map((n) => n * columns / w.layer.kvHeads);
  return [0, columns];
}

/* The head, and the feature of it, that a column stands for where `heads` of them are side by side. */
function placeOf(w, name, c, heads) {
  const width = w.array(name).columns / heads;
  return [Math.floor(c / width), c % width];
}

const sumOf = (terms) => terms.reduce((sum, term) => sum + term.value, 0);
const given = (text, total) => ({ text, terms: [], total });
const same = (text, place, w) => ({ text, terms: [], inputs: [place], total: w.at(...place) });

/* ---------------------------------------------------------------- projections */

/* A row of an input times a column of a weight, and a bias. */
function projection(w, from, weight, bias, r, c, own) {
  if (!w.has(weight) || !w.has(from)) {
    return { text: `Row ${r} of ${from} times column ${c} of ${weight}, which is left out: the layer has too many `
      + 'numbers for a page.', terms: [], inputs: w.has(from) ? [[from, r, 0]] : [], total: own };
  }
  const terms = [];
  for (let m = 0; m < w.array(weight).rows; m++) {
    terms.push({ value: w.at(from, r, m) * w.at(weight, m, c), from: [[from, r, m], [weight, m, c]] });
  }
  if (w.has(bias)) terms.push({ value: w.at(bias, 0, c), from: [[bias, 0, c]] });
  return { text: `Row ${r} of ${from} times column ${c} of ${weight}${w.has(bias) ? `, and ${bias}` : ''}.`, terms,
    total: sumOf(terms) };
}

/* The sum of these products of two places. */
function products(w, text, pairs) {
  const terms = pairs.map((from) => ({ value: w.at(...from[0]) * w.at(...from[1]), from }));
  return { text, terms, total: sumOf(terms) };
}

const range = (count, make) => Array.from({ length: count }, (_, i) => make(i));

/* An array that is computed here: at(w, row, column); and one whose numbers are what their explanations come to. */
const madeOf = (rows, columns, at) => ({ rows, columns, at });
const madeBy = (name, rows, columns) => madeOf(rows, columns, (w, r, c) => EXPLAIN[name](w, r, c).total);

const queryInput = (w) => (w.knows('q_latent') ? 'q_latent_normed' : 'x_q');

function query(w, r, c) {
  const { kvRank, ownFeatures: dn, valueWidth: dv, absorbed } = w.walk.rows;
  if (!w.knows('W_Q')) return given('q was given; nothing is projected.', w.at('x_q', r, c));
  if (!absorbed) return projection(w, queryInput(w), 'W_Q', 'b_Q', r, c, w.at('q', r, c));
  const [head, f] = placeOf(w, 'q', c, w.layer.h), wide = w.array('W_Q').columns / w.layer.h;
  if (!w.has('q_wide') || !w.has('W_KVB')) return given('From W_Q and W_KVB, which are left out.', w.at('q', r, c));
  if (f >= kvRank) {
    return same('A feature that is rotated, as projected.', ['q_wide', r, head * wide + dn + f - kvRank], w);
  }
  return products(w, `The head’s own features times row ${f} of its part of W_KVB: absorbed, keys stay latents.`,
    range(dn, (m) => [['q_wide', r, head * wide + m], ['W_KVB', f, head * (dn + dv) + m]]));
}

/* A new key or value, row r of those of this call. */
function keyOrValue(name, w, r, c) {
  const { kvRank, ownFeatures: dn, valueWidth: dv, absorbed } = w.walk.rows, letter = name.toUpperCase();
  const own = () => w.at(name, name === 'v' ? r + w.walk.past : r, c);
  if (!kvRank) {
    return w.knows(`W_${letter}`) ? projection(w, `x_${name}`, `W_${letter}`, `b_${letter}`, r, c, own())
      : given(`${name} was given; nothing is projected.`, w.at(`x_${name}`, r, c));
  }
  const [head, f] = placeOf(w, name, c, w.layer.kvHeads), width = name === 'k' ? dn : Infinity;
  if (absorbed && f < kvRank) return same('The latent, after its norm, for all heads.', ['kv_latent_normed', r, f], w);
  if (absorbed || f >= width) {
    const column = absorbed ? f : kvRank + f - dn;
    return same('A feature that is rotated, the same for all heads.', ['kv_latent', r, column], w);
  }
  return projection(w, 'kv_latent_normed', 'W_KVB', '', r, head * (dn + dv) + (name === 'v' ? dn : 0) + f, own());
}

/* ---------------------------------------------------------------- norms */

/* A norm: `from` is normalised over `count` features at a time; factor(c) and bias(c) are places, or null. */
function normOf(w, side) {
  const { norms, normEps } = w.walk.rows, { norm_kind: normKind, norm_plus_one: plusOne } = w.walk.settings;
  const kind = norms[side === 'q' ? 0 : 1];
  const { columns } = w.array(side), width = w.layer.d_k;
  const place = (name) => (c) => (!w.has(name) ? null
    : [name, kind === NORM.eachHead ? Math.floor(c / width) : 0, kind === NORM.row ? c : c % width]);
  return { kind: normKind, plusOne, eps: normEps, count: kind === NORM.row ? columns : width,
    factor: place(`${side}_norm`), bias: place(`${side}_norm_bias`) };
}

const latentNorm = (w, weight, count) => ({ kind: NORM_KIND.rms, plusOne: false, eps: w.walk.rows.normEps, count,
  factor: (c) => [weight, 0, c], bias: () => null });

/* The mean that is taken away, and the square that is divided by, of the features around column c. */
function statisticsOf(w, norm, from, r, c) {
  const first = c - c % norm.count, memo = w.walk.means, key = `${from} ${r} ${first}`;
  if (memo[key]) return memo[key];
  const x = range(norm.count, (i) => w.at(from, r, first + i));
  const mean = norm.kind === NORM_KIND.layer ? x.reduce((sum, v) => sum + v, 0) / norm.count : 0;
  const over = norm.kind === NORM_KIND.l2 ? 1 : norm.count;
  const squares = x.map((v) => (v - mean) * (v - mean) / over);
  return memo[key] = { first, mean, squares, square: squares.reduce((sum, v) => sum + v, 0) };
}

function normalised(w, norm, from, r, c) {
  const { mean, square } = statisticsOf(w, norm, from, r, c), factor = norm.factor(c), bias = norm.bias(c);
  const weight = factor ? w.at(...factor) + (norm.plusOne ? 1 : 0) : 1;
  return (w.at(from, r, c) - mean) / Math.sqrt(square + norm.eps) * weight + (bias ? w.at(...bias) : 0);
}

function explainNorm(w, norm, from, r, c) {
  const { first, mean, squares, square } = statisticsOf(w, norm, from, r, c);
  const factor = norm.factor(c), bias = norm.bias(c), x = textOf(w.at(from, r, c));
  const root = norm.kind === NORM_KIND.l2 ? 'sum of the squares' : 'mean square';
  const text = `${mean ? `(${x} − ${textOf(mean)})` : x} / √(${textOf(square)} + ${textOf(norm.eps)})`
    + `${factor ? ` × ${norm.plusOne ? `(1 + ${textOf(w.at(...factor))})` : textOf(w.at(...factor))}` : ''}`
    + `${bias ? ` + ${textOf(w.at(...bias))}` : ''}: over the root of the ${root} of columns ${first} to ${
      first + norm.count - 1}${norm.kind === NORM_KIND.layer ? ', about their mean' : ''}; their squares are below.`;
  const then = `${norm.kind === NORM_KIND.layer ? `, less ${textOf(mean)}` : ''}, squared${
    norm.kind === NORM_KIND.l2 ? '' : ` / ${norm.count}`}`;
  return { text, inputs: [[from, r, c], factor, bias].filter(Boolean), total: normalised(w, norm, from, r, c),
    terms: squares.map((value, i) => ({ value, from: [[from, r, first + i]], then })) };
}

/* ---------------------------------------------------------------- rotation */

/* The two features of a head that are turned together, and the number of their pair; null for one that is not. */
function pairOf(w, feature) {
  const { ropeDim } = w.walk, { rope, rope_last: last } = w.walk.settings;
  const first = last ? w.layer.d_k - ropeDim : 0, within = feature - first;
  if (rope === ROPE.none || within < 0 || within >= ropeDim) return null;
  const half = ropeDim / 2, pair = rope === ROPE.interleaved ? Math.floor(within / 2) : within % half;
  const features = rope === ROPE.interleaved ? [2 * pair, 2 * pair + 1] : [pair, pair + half];
  return { pair, features: features.map((f) => first + f) };
}

/* Feature c of a row, turned: its own part, and that of the feature it is turned with. */
function turn(w, from, side, r, c) {
  const f = c % w.layer.d_k, found = pairOf(w, f);
  if (!found) return null;
  const [a, b] = found.features.map((feature) => c - f + feature), times = w.walk.ropeTimes;
  const cos = [`${side}_cos`, r, found.pair], sin = [`${side}_sin`, r, found.pair];
  const [own, other, sign] = c === a ? [a, b, -1] : [b, a, 1];
  return { a, b, cos, sin, times, terms: [
    { value: times * w.at(from, r, own) * w.at(...cos), from: [[from, r, own], cos] },
    { value: times * sign * w.at(from, r, other) * w.at(...sin), from: [[from, r, other], sin],
      times: sign < 0 ? '−1' : '' }] };
}

const turned = (w, from, side, r, c) => {
  const found = turn(w, from, side, r, c);
  return found ? sumOf(found.terms) : w.at(from, r, c);
};

function explainTurn(w, from, side, r, c) {
  const found = turn(w, from, side, r, c);
  if (!found) return same('Not rotated.', [from, r, c], w);
  const [, , pair] = found.cos;
  const angle = w.has('frequencies') ? w.at(`${side}_position`, r, 0) * w.at('frequencies', 0, pair)
    : Math.atan2(w.at(...found.sin), w.at(...found.cos));
  const longer = found.times !== 1 ? `, and multiplied by ${textOf(found.times)}` : '';
  return { text: `Features ${found.a} and ${found.b} are turned together, by ${textOf(angle)} radians${longer}.`,
    terms: found.terms.map((term) => (longer ? { ...term, then: ` · ${textOf(found.times)}` } : term)),
    total: sumOf(found.terms) };
}

/* A cosine or sine: of a position times how fast its pair turns. */
function angleOf(name, w, r, c) {
  const side = name[0], isSine = name.endsWith('sin');
  const table = `From the call’s table of ${isSine ? 'sines' : 'cosines'}.`;
  if (!w.has('frequencies')) return given(table, w.at(name, r, c));
  const places = [[`${side}_position`, r, 0], ['frequencies', 0, c]], angle = w.at(...places[0]) * w.at(...places[1]);
  return { text: `${isSine ? 'sin' : 'cos'}(${textOf(angle)}): the position times how fast pair ${c} turns.`, terms: [],
    inputs: places, total: isSine ? Math.sin(angle) : Math.cos(angle) };
}

/* ---------------------------------------------------------------- from q to q_rot, from k to k_rot */

/* The operations on a row of queries or keys, in order: [step, from, to]. */
function stepsOf(w, side) {
  const { norms } = w.walk.rows, { norm_after_rope: normAfterRope } = w.walk.settings;
  const norm = norms[side === 'q' ? 0 : 1] !== NORM.none ? ['normed'] : [];
  const rope = w.walk.settings.rope !== ROPE.none ? ['turned'] : [];
  const steps = [...(normAfterRope ? [...rope, ...norm] : [...norm, ...rope]),
    ...(side === 'q' && w.has('query_scale') ? ['scaled'] : [])];
  return steps.map((step, n) => [step, n ? `${side}_${steps[n - 1]}` : side,
    `${side}_${n === steps.length - 1 ? 'rot' : step}`]);
}

const STEP = {
  normed: (w, side, from, r, c) => explainNorm(w, normOf(w, side), from, r, c),
  turned: (w, side, from, r, c) => explainTurn(w, from, side, r, c),
  scaled: (w, side, from, r, c) => products(w, 'Times the factor of the query’s position.',
    [[[from, r, c], ['query_scale', r, 0]]]),
};

/* The array that a step makes, where it is no stage; undefined where the layer has none of this name. */
function madeByStep(w, name) {
  const side = name[0], [step, from] = stepsOf(w, side).find(([, , to]) => to === name) ?? [];
  if (!step) return undefined;
  const { rows, columns } = w.array(side), norm = step === 'normed' && normOf(w, side);
  return madeOf(rows, columns, (v, r, c) => (norm ? normalised(w, norm, from, r, c) : turned(w, from, side, r, c)));
}

function rowStep(name, w, r, c) {
  const side = name[0], row = r - (name === 'k_rot' ? w.walk.past : 0);
  if (row < 0) return given('From the cache: computed by an earlier call.', w.at(name, r, c));
  const [step, from] = stepsOf(w, side).find(([, , to]) => to === name) ?? [];
  return step ? STEP[step](w, side, from, row, c) : same('Not rotated.', [side, row, c], w);
}

function scaleOfQuery(w, r, c) {
  const { query_scale_growth: growth, query_scale_every: every, query_scale_first: first } = w.walk.settings;
  const { log_n_scale: trained } = w.walk.settings, p = w.at('q_position', r, 0), said = [];
  let total = 1;
  if (growth > 0) {
    const steps = Math.max(0, Math.floor((p + first) / every));
    said.push(`1 + ${textOf(growth)} log(1 + ${steps}): ${every} positions are a step, and this one is ${p}`);
    total = 1 + growth * Math.log(1 + steps);
  }
  if (trained > 0) {
    const beyond = p + 1 > trained;
    said.push(beyond ? `log(${p + 1}) / log(${trained}): position ${p} is beyond the training length ${trained}`
      : `1: position ${p} is within the training length ${trained}`);
    total *= beyond ? Math.log(p + 1) / Math.log(trained) : 1;
  }
  return { text: `${said.join('; times ')}.`, terms: [], inputs: [['q_position', r, c]], total };
}

/* The arrays between the stages; undefined for a layer that has none. */
const MADE = {
  ...Object.fromEntries(['q_normed', 'q_turned', 'k_normed', 'k_turned'].map((name) => [name,
    (w) => madeByStep(w, name)])),
  q_latent_normed: (w) => w.knows('q_latent') && madeOf(w.array('q_latent').rows, w.array('q_latent').columns,
    (v, r, c) => normalised(w, latentNorm(w, 'qa_norm', w.array('q_latent').columns), 'q_latent', r, c)),
  kv_latent_normed: (w) => w.knows('kv_latent') && madeOf(w.array('kv_latent').rows, w.walk.rows.kvRank,
    (v, r, c) => normalised(w, latentNorm(w, 'kva_norm', w.walk.rows.kvRank), 'kv_latent', r, c)),
  q_wide: (w) => w.walk.rows.absorbed && w.has('W_Q') && w.has(queryInput(w))
    && madeBy('q_wide', w.array('q').rows, w.array('W_Q').columns),
  mixed: (w) => w.walk.rows.absorbed && madeBy('mixed', w.array('heads').rows, w.walk.rows.kvRank * w.layer.h),
  gate: (w) => w.has('W_G') && madeBy('gate', w.array('heads').rows, w.array('W_G').columns),
};

/* ---------------------------------------------------------------- scores */

function score(w, r, c) {
  const [q] = sliceOf(w, 'q_rot'), [k] = sliceOf(w, 'k_rot'), { rows } = w.array('k_rot'), times = textOf(w.walk.scale);
  if (c > rows || (c === rows && !w.has('bias_k'))) return given('A key that is no token: zeros.', 0);
  const key = (f) => (c < rows ? ['k_rot', c, k + f] : ['bias_k', 0, k + f]);
  const terms = range(w.layer.d_k, (f) => ({ value: w.walk.scale * w.at('q_rot', r, q + f) * w.at(...key(f)), times,
    from: [['q_rot', r, q + f], key(f)] }));
  return { text: `Query ${r} times ${c < rows ? `key ${c}` : 'the learned key'}, feature by feature, times the scale ${
    times}.`, terms, total: sumOf(terms) };
}

/* The rules that hide a token's key, whatever masks do. */
function rulesAgainst(w, r, c) {
  const { offset, firstKey, length } = w.walk, { causal, prefix, chunk, window_keep: keep } = w.walk.settings;
  const { window_left: left, window_right: right } = w.walk.settings;
  const own = r + offset, position = c + firstKey, rules = [];
  const key = `key ${c}${firstKey ? `, at position ${position},` : ''}`;
  if (c >= w.array('k_rot').rows) return rules;
  if (length >= 0 && position >= length) rules.push(`the sequence has ${length} keys`);
  if (causal && position > own && position >= prefix) {
    rules.push(`${key} comes after the query, whose position is ${own}: causal${
      prefix > 0 ? `; only the first ${prefix}, the prefix, are seen by all` : ''}`);
  }
  if (chunk > 0 && Math.floor(position / chunk) !== Math.floor(own / chunk)) {
    rules.push(`${key} is in chunk ${Math.floor(position / chunk)} of ${chunk} positions each, the query in chunk ${
      Math.floor(own / chunk)}`);
  }
  if ((left >= 0 && position < own - left && position >= keep) || (right >= 0 && position > own + right)) {
    rules.push(`${key} is outside the window around position ${own}${
      keep > 0 ? `, and not one of the first ${keep}, which it keeps` : ''}`);
  }
  return rules;
}

/* Masks and parts of a pattern that hide a key, each for itself. */
const hidersOf = (w, r, c) => (w.has('hidden_by')
  ? w.walk.hides.filter((_, n) => w.at('hidden_by', r, c) & (1 << n)) : []);

/* All reasons why a key is hidden; null when it is not. */
const whyHidden = (w, r, c) => (w.at('masked', r, c) === -Infinity
  ? [...rulesAgainst(w, r, c), ...hidersOf(w, r, c)].join('; and ') || 'its score is minus infinity' : null);

/* A score after the softcap, and what is added to it. */
function masked(w, r, c) {
  const why = whyHidden(w, r, c), terms = [{ value: w.at('capped', r, c), from: [['capped', r, c]] }], names = [];
  if (why) return { text: `−∞: hidden, because ${why}.`, terms: [], inputs: [['capped', r, c]], total: -Infinity };
  const add = (name, term) => {
    names.push(name);
    terms.push(term);
  };
  if (c < w.array('k_rot').rows) {
    const distance = r + w.walk.offset - (c + w.walk.firstKey);
    if (w.has('alibi_slopes')) {
      const slope = ['alibi_slopes', 0, w.h];
      add('ALiBi', { value: -w.at(...slope) * distance, from: [slope], times: `(−${distance})`.replace('−-', '') });
    }
    if (w.has('bias_rows')) {
      const entry = ['bias_table', w.at('bias_rows', r, c), w.h];
      add(`row ${entry[1]} of the table of biases`, { value: w.at(...entry), from: [entry] });
    }
    for (const [name, what] of [['key_padding', 'the key padding'], ['mask', 'the mask']]) {
      if (w.has(name) && w.at(name, r, c) !== 0) add(what, { value: w.at(name, r, c), from: [[name, r, c]] });
    }
  }
  return { text: names.length ? `Visible; added: ${names.join(', ')}.` : 'Visible; nothing is added.', terms,
    total: sumOf(terms) };
}

function weight(w, r, c) {
  const why = whyHidden(w, r, c), inputs = [['masked', r, c]], bias = w.walk.settings.sigmoid_bias;
  if (why) return { text: `0: hidden, because ${why}.`, terms: [], inputs, total: w.at('weights', r, c) };
  if (!w.walk.settings.normaliser) return softmax(w, r, c);
  const x = w.at('masked', r, c) + bias;
  return { text: `1 / (1 + exp(−(${textOf(x)}))): the sigmoid of the score${bias ? ` and its bias ${textOf(bias)}` : ''}, `
    + 'each key by itself.', terms: [], inputs, total: 1 / (1 + Math.exp(-x)) };
}

function softmax(w, r, c) {
  const { columns } = w.array('weights'), beside = [];
  if (w.has('sinks')) beside.push({ x: w.at('sinks', 0, w.h), from: [['sinks', 0, w.h]], what: '' });
  if (w.walk.settings.softmax_plus_one) beside.push({ x: 0, from: [], what: 'plus one: 0' });
  let most = -Infinity;
  for (let k = 0; k < columns; k++) most = Math.max(most, w.at('masked', r, k));
  for (const { x } of beside) most = Math.max(most, x);
  const terms = [], then = `, exp(it − ${textOf(most)})`;
  for (let k = 0; k < columns; k++) {
    if (w.at('masked', r, k) === -Infinity) continue;
    terms.push({ value: Math.exp(w.at('masked', r, k) - most), from: [['masked', r, k]], then });
  }
  const keys = terms.length;
  for (const { x, from, what } of beside) terms.push({ value: Math.exp(x - most), from, then: what + then });
  const own = Math.exp(w.at('masked', r, c) - most), all = sumOf(terms);
  const rest = terms.length > keys ? ` No key has ${textOf(sumOf(terms.slice(keys)) / all)} of the softmax (sinks).`
    : '';
  return { text: `exp(${textOf(w.at('masked', r, c))} − ${textOf(most)}) = ${textOf(own)}, over the sum ${textOf(all)} `
    + `of all visible keys${rest ? ' and sinks' : ''}, whose largest is ${textOf(most)}.${rest}`, terms,
    total: own / all };
}

/* ---------------------------------------------------------------- heads and output */

/* The sum of values that the weights of a head give; column c of the array `name`, all heads side by side. */
function weighted(name, w, r, c) {
  const [first, past] = sliceOf(w, name), [v] = sliceOf(w, 'v'), terms = [];
  const { columns } = w.array('weights'), { rows } = w.array('v');
  if (c < first || c >= past) return given('Of another head.', NaN);
  for (let k = 0; k < columns; k++) {
    const weight = w.at('weights', r, k);
    if (weight === 0 && w.at('masked', r, k) === -Infinity && !w.walk.settings.hidden_values) continue;
    const value = k < rows ? ['v', k, v + c - first]
      : k === rows && w.has('bias_v') ? ['bias_v', 0, v + c - first] : null;
    if (value) terms.push({ value: weight * w.at(...value), from: [['weights', r, k], value] });
    else if (Number.isNaN(weight)) terms.push({ value: weight, from: [['weights', r, k]], times: '0' });
  }
  if (!terms.length) return given('The query sees no key with a value: 0.', 0);
  return { text: `Column ${c} of the values, weighted with row ${r} of the weights.`, terms, total: sumOf(terms) };
}

function leaveLatent(w, r, c) {
  const { kvRank, ownFeatures: dn, valueWidth: dv, absorbed } = w.walk.rows;
  if (!absorbed) return weighted('heads', w, r, c);
  const [head, f] = placeOf(w, 'heads', c, w.layer.h);
  if (!w.has('W_KVB')) return given('From the weighted latents and W_KVB, which is left out.', w.at('heads', r, c));
  return products(w, `The weighted latents times column ${f} of the values in the head’s part of W_KVB.`,
    range(kvRank, (k) => [['mixed', r, head * kvRank + k], ['W_KVB', k, head * (dn + dv) + dn + f]]));
}

function gated(w, r, c) {
  if (!w.has('gate')) return given('The heads times their gate, from W_G, which is left out.', w.at('gated', r, c));
  const gate = ['gate', r, Math.floor(c * w.array('gate').columns / w.array('heads').columns)], x = w.at(...gate);
  const open = 1 / (1 + Math.exp(-x));
  return { text: `${textOf(w.at('heads', r, c))} × ${textOf(open)}: the head times sigmoid(${textOf(x)}), which is `
    + `1 / (1 + exp(−(${textOf(x)}))).`, terms: [], inputs: [['heads', r, c], gate], total: w.at('heads', r, c) * open };
}

/* For each array the function (w, row, column) that explains a number of it. */
const EXPLAIN = {
  q_latent: (w, r, c) => projection(w, 'x_q', 'W_QA', 'b_QA', r, c, w.at('q_latent', r, c)),
  kv_latent: (w, r, c) => projection(w, 'x_k', 'W_KVA', 'b_KVA', r, c, w.at('kv_latent', r, c)),
  q_latent_normed: (w, r, c) => explainNorm(w, latentNorm(w, 'qa_norm', w.array('q_latent').columns), 'q_latent', r, c),
  kv_latent_normed: (w, r, c) => explainNorm(w, latentNorm(w, 'kva_norm', w.walk.rows.kvRank), 'kv_latent', r, c),
  q_wide: (w, r, c) => projection(w, queryInput(w), 'W_Q', 'b_Q', r, c),
  q: query,
  k: (w, r, c) => keyOrValue('k', w, r, c),
  v: (w, r, c) => (r < w.walk.past ? given('From the cache: computed by an earlier call.', w.at('v', r, c))
    : keyOrValue('v', w, r - w.walk.past, c)),
  ...Object.fromEntries(['q_normed', 'q_turned', 'q_rot', 'k_normed', 'k_turned', 'k_rot'].map((name) => [name,
    (w, r, c) => rowStep(name, w, r, c)])),
  ...Object.fromEntries(['q_cos', 'q_sin', 'k_cos', 'k_sin'].map((name) => [name,
    (w, r, c) => angleOf(name, w, r, c)])),
  query_scale: scaleOfQuery,
  scores: score,
  capped: (w, r, c) => {
    const { softcap } = w.walk.settings, s = w.at('scores', r, c);
    return { text: softcap > 0 ? `${textOf(softcap)} tanh(${textOf(s)} / ${textOf(softcap)})` : 'No softcap: the score.',
      terms: [], inputs: [['scores', r, c]], total: softcap > 0 ? softcap * Math.tanh(s / softcap) : s };
  },
  masked,
  weights: weight,
  mixed: (w, r, c) => weighted('mixed', w, r, c),
  heads: leaveLatent,
  gate: (w, r, c) => projection(w, 'x_q', 'W_G', 'b_G', r, c),
  gated,
  output: (w, r, c) => {
    const from = w.knows('gated') ? 'gated' : 'heads';
    return w.knows('W_O') ? projection(w, from, 'W_O', 'b_O', r, c, w.at('output', r, c))
      : same('No output projection: the heads side by side.', [from, r, c], w);
  },
};

/* Inputs: [a pattern of the name, a sentence]. */
const SOURCES = [[/^x_/, 'An input.'], [/^(mask|key_padding)$/, 'What the call’s mask adds.'],
  [/_position$/, 'A position.'],
  [/^frequencies$/, 'How many radians a pair of features turns from one position to the next.'],
  [/^alibi_slopes$/, 'A slope of ALiBi.'], [/./, 'A parameter.']];

function explain(w, [name, r, c]) {
  if (name in EXPLAIN) return EXPLAIN[name](w, r, c);
  return given(SOURCES.find(([pattern]) => pattern.test(name))[1], w.at(name, r, c));
}
