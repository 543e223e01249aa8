/* The walk: a layer's numbers from x to the output, for one query, one key and one head; each number with the numbers
 * that it comes from. */

/* Stages of scores have a matrix for each head. */
const BY_HEAD = new Set(['scores', 'capped', 'masked', 'weights']);
const ROPE = { none: 0, interleaved: 1, half: 2 };

/* Most numbers of a row that are shown at a time; side of a small matrix in pixels. */
const WALK = { numbers: 32, side: 120 };

/* The number that is explained: an array's name, row and column. */
let explained = null;

/* ---------------------------------------------------------------- numbers */

/* A layer's walk at the chosen head, query i and key j. */
function walkAt(head, query, key) {
  const { layer } = head, { walk } = layer;
  const group = layer.h / layer.kvHeads;
  const w = { walk, layer, h: head.head, kv: Math.floor(head.head / group), i: query, j: key };
  w.knows = (name) => name in walk.arrays; /* its shape, if not its numbers */
  w.has = (name) => w.knows(name) && walk.arrays[name].numbers >= 0;
  w.array = (name) => walk.arrays[name];
  w.at = (name, r, c) => {
    const array = w.array(name);
    const first = BY_HEAD.has(name) ? (w.h - walk.firstHead) * array.rows * array.columns : 0;
    return data.numbers(array.numbers)[first + r * array.columns + c];
  };
  return w;
}

/* Columns of a head in arrays whose rows hold all heads side by side. */
function sliceOf(w, name) {
  const { d_k: dk, d_v: dv } = w.layer;
  const slices = { q: [w.h, dk], q_rot: [w.h, dk], k: [w.kv, dk], k_rot: [w.kv, dk], v: [w.kv, dv], heads: [w.h, dv],
    W_Q: [w.h, dk], W_K: [w.kv, dk], W_V: [w.kv, dv] };
  if (!(name in slices)) return [0, w.array(name).columns];
  const [head, width] = slices[name];
  return [head * width, (head + 1) * width];
}

/* ---------------------------------------------------------------- where a number comes from */

const sumOf = (terms) => terms.reduce((sum, term) => sum + term.value, 0);

/* A row of an input times a column of a weight, and a bias. */
function projection(w, from, weight, bias, r, c, total) {
  if (!w.has(weight)) {
    return { text: `Row ${r} of ${from} times column ${c} of ${weight}, which is left out: the layer has too many numbers `
      + 'for a page.', terms: [], inputs: [[from, r, 0]], total };
  }
  const terms = [];
  for (let m = 0; m < w.array(from).columns; m++) {
    terms.push({ value: w.at(from, r, m) * w.at(weight, m, c), from: [[from, r, m], [weight, m, c]] });
  }
  if (w.has(bias)) terms.push({ value: w.at(bias, 0, c), from: [[bias, 0, c]] });
  return { text: `Row ${r} of ${from} times column ${c} of ${weight}${w.has(bias) ? `, and ${bias}` : ''}.`, terms,
    total: sumOf(terms) };
}

function projectionOf(name, w, r, c) {
  const letter = name.toUpperCase();
  const past = name === 'v' ? w.walk.past : 0, own = w.at(name, r, c);
  if (r < past) return { text: 'From the cache: computed by an earlier call.', terms: [], total: own };
  if (w.knows(`W_${letter}`)) return projection(w, `x_${name}`, `W_${letter}`, `b_${letter}`, r - past, c, own);
  return { text: `${name} was given; nothing is projected.`, terms: [], total: w.at(`x_${name}`, r - past, c) };
}

/* The two features of a head that are turned together, or null for one that is not turned. */
function pairOf(w, feature) {
  const { rope, ropeDim, ropeLast } = w.walk, first = ropeLast ? w.layer.d_k - ropeDim : 0, within = feature - first;
  if (rope === ROPE.none || within < 0 || within >= ropeDim) return null;
  const half = ropeDim / 2, even = within - within % 2;
  return (rope === ROPE.interleaved ? [even, even + 1] : [within % half, within % half + half]).map((f) => first + f);
}

function rotation(name, w, r, c) {
  const past = name === 'k_rot' ? w.walk.past : 0, from = r - past;
  if (from < 0) return { text: 'From the cache: computed by an earlier call.', terms: [], total: w.at(name, r, c) };
  const before = name.slice(0, 1), first = sliceOf(w, name)[0], width = w.layer.d_k;
  const pair = pairOf(w, (c - first) % width);
  if (w.has(`${before === 'q' ? 'q' : 'k'}_norm`)) {
    return { text: `${before} after its norm${w.walk.rope ? ' and its rotation' : ''}.`, terms: [],
      inputs: [[before, from, c]], total: w.at(name, r, c) };
  }
  if (!pair) return { text: 'Not rotated.', terms: [], inputs: [[before, from, c]], total: w.at(before, from, c) };
  const [a, b] = pair.map((f) => first + f), x = w.at(before, from, a), y = w.at(before, from, b);
  const angle = Math.atan2(w.at(name, r, b), w.at(name, r, a)) - Math.atan2(y, x);
  const turned = Math.atan2(Math.sin(angle), Math.cos(angle));
  const factor = Math.hypot(x, y) > 0 ? Math.hypot(w.at(name, r, a), w.at(name, r, b)) / Math.hypot(x, y) : 1;
  const [cos, sin] = [factor * Math.cos(angle), factor * Math.sin(angle)];
  const terms = c === a
    ? [{ value: x * cos, from: [[before, from, a]], times: 'cos' },
      { value: -y * sin, from: [[before, from, b]], times: '−sin' }]
    : [{ value: y * cos, from: [[before, from, b]], times: 'cos' },
      { value: x * sin, from: [[before, from, a]], times: 'sin' }];
  const longer = Math.abs(factor - 1) > 1e-6 ? `, and multiplied by ${textOf(factor)}` : '';
  return { text: `Features ${a} and ${b} are turned together, by ${textOf(turned)} radians${longer}.`, terms,
    total: sumOf(terms) };
}

function score(w, r, c) {
  const [q] = sliceOf(w, 'q_rot'), [k] = sliceOf(w, 'k_rot'), terms = [];
  if (c >= w.array('k_rot').rows) {
    return { text: 'A key that is no token: a learned row, or zeros.', terms, total: w.at('scores', r, c) };
  }
  for (let f = 0; f < w.layer.d_k; f++) {
    terms.push({ value: w.walk.scale * w.at('q_rot', r, q + f) * w.at('k_rot', c, k + f), times: textOf(w.walk.scale),
      from: [['q_rot', r, q + f], ['k_rot', c, k + f]] });
  }
  return { text: `Query ${r} times key ${c}, feature by feature, times the scale ${textOf(w.walk.scale)}.`, terms,
    total: sumOf(terms) };
}

/* The rule that hides a token's key, whatever masks do; null when none does. */
function ruleAgainst(w, r, c) {
  const { causal, window, left, right, prefix, keep, chunk, offset, firstKey, length } = w.walk;
  const own = r + offset, position = c + firstKey;
  const key = `key ${c}${firstKey ? `, at position ${position},` : ''}`;
  if (c >= w.array('k_rot').rows) return null;
  if (length >= 0 && position >= length) return `the sequence has ${length} keys`;
  if (causal && position > own && position >= prefix) {
    return `${key} comes after the query, whose position is ${own}: causal${
      prefix > 0 ? `; only the first ${prefix}, the prefix, are seen by all` : ''}`;
  }
  if (chunk > 0 && Math.floor(position / chunk) !== Math.floor(own / chunk)) {
    return `${key} is in chunk ${Math.floor(position / chunk)} of ${chunk} positions each, the query in chunk ${
      Math.floor(own / chunk)}`;
  }
  if (window && ((left >= 0 && position < own - left && position >= keep) || (right >= 0 && position > own + right))) {
    return `${key} is outside the window around position ${own}${
      keep > 0 ? `, and not one of the first ${keep}, which it keeps` : ''}`;
  }
  return null;
}

/* Why a key is hidden; null when it is not. */
const whyHidden = (w, r, c) => (w.at('masked', r, c) === -Infinity
  ? ruleAgainst(w, r, c) ?? `${w.walk.hides.join(' or ') || 'a bias of minus infinity'} hides it` : null);

function softmax(w, r, c) {
  const { columns } = w.array('weights'), why = whyHidden(w, r, c);
  if (why) return { text: `0: hidden, because ${why}.`, terms: [], inputs: [['masked', r, c]], total: w.at('weights', r, c) };
  let most = -Infinity, kept = 0;
  for (let k = 0; k < columns; k++) most = Math.max(most, w.at('masked', r, k));
  const terms = [];
  for (let k = 0; k < columns; k++) {
    kept += w.at('weights', r, k);
    if (w.at('masked', r, k) !== -Infinity) {
      terms.push({ value: Math.exp(w.at('masked', r, k) - most), from: [['masked', r, k]], then: `, exp(it − ${textOf(most)})` });
    }
  }
  const own = Math.exp(w.at('masked', r, c) - most), all = sumOf(terms) / kept;
  const rest = 1 - kept > 1e-9 ? ` No key has ${textOf(1 - kept)} of the softmax (sinks).` : '';
  return { text: `exp(${textOf(w.at('masked', r, c))} − ${textOf(most)}) = ${textOf(own)}, over the sum ${textOf(all)} `
    + `of all visible keys, whose largest is ${textOf(most)}.${rest}`, terms, total: own / all };
}

function weighted(w, r, c) {
  const [first] = sliceOf(w, 'heads'), [v] = sliceOf(w, 'v'), terms = [];
  const { columns } = w.array('weights'), { rows } = w.array('v');
  for (let k = 0; k < Math.min(columns, rows); k++) {
    if (w.at('weights', r, k) === 0) continue;
    terms.push({ value: w.at('weights', r, k) * w.at('v', k, v + c - first), from: [['weights', r, k],
      ['v', k, v + c - first]] });
  }
  const extra = columns > rows ? ' Keys that are no tokens add their own values.' : '';
  return { text: `Column ${c} of the values, weighted with row ${r} of the weights.${extra}`, terms,
    total: extra ? w.at('heads', r, c) : sumOf(terms) };
}

/* For each array the function (w, row, column) that explains a number of it. */
const EXPLAIN = {
  q: (w, r, c) => projectionOf('q', w, r, c),
  k: (w, r, c) => projectionOf('k', w, r, c),
  v: (w, r, c) => projectionOf('v', w, r, c),
  q_rot: (w, r, c) => rotation('q_rot', w, r, c),
  k_rot: (w, r, c) => rotation('k_rot', w, r, c),
  scores: score,
  capped: (w, r, c) => {
    const { softcap } = w.walk, s = w.at('scores', r, c);
    return { text: softcap > 0 ? `${textOf(softcap)} tanh(${textOf(s)} / ${textOf(softcap)})` : 'No softcap: the score.',
      terms: [], inputs: [['scores', r, c]], total: softcap > 0 ? softcap * Math.tanh(s / softcap) : s };
  },
  masked: (w, r, c) => {
    const why = whyHidden(w, r, c), added = w.at('masked', r, c) - w.at('capped', r, c);
    const text = why ? `−∞: hidden, because ${why}.` : added ? `${textOf(added)} is added.` : 'Visible; nothing is added.';
    return { text, terms: [], inputs: [['capped', r, c]], total: w.at('masked', r, c) };
  },
  weights: softmax,
  heads: weighted,
  output: (w, r, c) => (w.knows('W_O') ? projection(w, 'heads', 'W_O', 'b_O', r, c, w.at('output', r, c))
    : { text: 'No output projection: the heads side by side.', terms: [], inputs: [['heads', r, c]],
      total: w.at('heads', r, c) }),
};

function explain(w, [name, r, c]) {
  if (name in EXPLAIN) return EXPLAIN[name](w, r, c);
  return { text: name.startsWith('x_') ? 'An input.' : 'A parameter.', terms: [], total: w.at(name, r, c) };
}

/* ---------------------------------------------------------------- panels */

/* The eleven panels, in the order of the stages: a title, what happens, and the rows that are shown. */
function panelsOf(w) {
  const { layer, i, j } = w, { past } = w.walk, own = j - past, group = layer.kvHeads < layer.h ? `, which ${layer.h / layer.kvHeads} heads share` : '';
  const view = 'The head’s columns are a view of the whole, not a matrix of their own.';
  return [
    ['x', 'The inputs: a row for each token.', [['x_q', i], ['x_k', own]]],
    ['q = x W_Q + b_Q', view, [['q', i]], 'W_Q'],
    ['k = x W_K + b_K', `Key/value head ${w.kv}${group}.`, [['k', own]], 'W_K'],
    ['v = x W_V + b_V', `Key/value head ${w.kv}${group}.`, [['v', j]], 'W_V'],
    ['norm and rotation', w.walk.rope ? 'Pairs of features are turned by an angle that grows with the position.'
      : 'Nothing is rotated here.', [['q_rot', i], ['k_rot', j]]],
    ['scores = scale · q kᵀ', `One number for each query and key; d_k = ${layer.d_k}.`, [['scores', i]]],
    ['softcap', w.walk.softcap > 0 ? `Scores stay within ±${textOf(w.walk.softcap)}.` : 'None here.', [['capped', i]]],
    ['hide and add', whyHidden(w, i, j) ? `Key ${j} is hidden: ${whyHidden(w, i, j)}.` : `Query ${i} sees key ${j}.`,
      [['masked', i]]],
    ['softmax', 'Each row becomes weights.', [['weights', i]]],
    ['heads = weights · v', 'Each head writes its own columns: that is the concatenation.', [['heads', i]]],
    ['output = heads W_O + b_O', 'Head and head meet here: the head’s rows of W_O.', [['output', i]], 'W_O'],
  ].map(([title, text, rows, weight]) => ({ title,
    text: [text, weight && w.knows(weight) && !w.has(weight) && `${weight} is left out: too many numbers for a page.`,
      rows.some(([, row]) => row < 0) && 'The key is from the cache.'].filter(Boolean).join(' '),
    rows: rows.filter(([name, row]) => w.has(name) && row >= 0),
    weight: weight && w.has(weight) ? weight : null }));
}

/* A matrix as a small picture, with the head's part and the row framed. */
function matrixPicture(w, name, row, isWeight) {
  const { rows, columns } = w.array(name), colours = data.numbers(data.diverging);
  const canvas = document.createElement('canvas');
  canvas.width = columns;
  canvas.height = rows;
  const context = canvas.getContext('2d'), image = context.createImageData(columns, rows);
  let most = 0;
  for (let r = 0; r < rows; r++) {
    for (let c = 0; c < columns; c++) if (Number.isFinite(w.at(name, r, c))) most = Math.max(most, Math.abs(w.at(name, r, c)));
  }
  for (let r = 0, i = 0; r < rows; r++) {
    for (let c = 0; c < columns; c++, i++) {
      const x = w.at(name, r, c);
      if (!Number.isFinite(x)) continue;
      const at = 3 * Math.round(127.5 + 127.5 * x / (most || 1));
      image.data.set([colours[at], colours[at + 1], colours[at + 2], 255], 4 * i);
    }
  }
  context.putImageData(image, 0, 0);
  const cell = Math.min(WALK.side / Math.max(rows, columns), 10), width = cell * columns, height = cell * rows;
  const [from, to] = sliceOf(w, name), dv = w.layer.d_v;
  const frame = name === 'W_O' ? [0, w.h * dv, columns, dv] : isWeight ? [from, 0, to - from, rows]
    : [from, row, to - from, 1];
  const [x, y, fw, fh] = frame.map((n) => n * cell);
  const picture = svg('svg', { width: width + 4, height: height + 4, viewBox: `-2 -2 ${width + 4} ${height + 4}`,
    role: 'img', 'aria-label': `${name}, ${rows} by ${columns}; framed: ${isWeight ? `head ${w.h}` : `row ${row}`}` });
  picture.append(svg('image', { width, height, href: canvas.toDataURL(), preserveAspectRatio: 'none',
    style: 'image-rendering: pixelated' }), svg('rect', { width, height, fill: 'none', stroke: styleOf('--line') }),
  svg('rect', { x, y, width: fw, height: Math.max(fh, 2), fill: 'none', stroke: styleOf('--mark'), 'stroke-width': 2 }));
  return element('figure', {}, picture, element('figcaption', {}, `${name} (${rows}, ${columns})`));
}

const shortText = (x) => textOf(Number.isFinite(x) ? Number(x.toPrecision(4)) : x);

function numberButton(w, place, text) {
  const [name, r, c] = place;
  const button = element('button', { type: 'button', class: 'number', title: `${name}[${r}, ${c}]` },
    text ?? shortText(w.at(name, r, c)));
  button.setAttribute('aria-label', `${name} row ${r} column ${c}: ${textOf(w.at(name, r, c))}`);
  button.setAttribute('aria-pressed', String(explained) === String(place));
  button.addEventListener('click', () => {
    explained = place;
    drawWalk();
  });
  return button;
}

/* Numbers of a row: the head's part, at most so many, among them that of key j. */
function rowOf(w, name, row) {
  let [from, to] = sliceOf(w, name);
  const all = to - from;
  if (all > WALK.numbers && BY_HEAD.has(name)) from = Math.max(0, Math.min(w.j - WALK.numbers / 2, to - WALK.numbers));
  to = Math.min(to, from + WALK.numbers);
  const numbers = [];
  for (let c = from; c < to; c++) numbers.push(numberButton(w, [name, row, c]));
  const part = to - from < all ? `, columns ${from} to ${to - 1} of ${all}` : '';
  return element('div', { class: 'row' }, element('span', { class: 'help' }, `${name}, row ${row}${part}`),
    element('div', { class: 'numbers' }, ...numbers));
}

function panel(w, { title, text, rows, weight }, index) {
  const pictures = rows.map(([name, row]) => matrixPicture(w, name, row, false));
  if (weight) pictures.unshift(matrixPicture(w, weight, 0, true));
  return element('article', { class: 'panel' }, element('h3', {}, `${index + 1}. ${title}`),
    element('p', { class: 'help' }, text), element('div', { class: 'pictures' }, ...pictures),
    ...rows.map(([name, row]) => rowOf(w, name, row)));
}

/* ---------------------------------------------------------------- the sum and the parameters */

function drawSum(w) {
  if (!explained) {
    $('walk-sum').replaceChildren(element('p', { class: 'help' }, 'Click a number to see the numbers it came from.'));
    return;
  }
  const [name, r, c] = explained, { text, terms, inputs, total } = explain(w, explained);
  let sum = 0;
  const rows = terms.map((term) => {
    sum += term.value;
    const factors = term.from.flatMap((place, n) => [n ? ' × ' : '', numberButton(w, place)]);
    return element('tr', {}, element('td', {}, ...factors, term.times ? ` · ${term.times}` : '', term.then ?? ''),
      element('td', {}, shortText(term.value)), element('td', {}, textOf(sum)));
  });
  const head = element('tr', {}, ...['from', 'term', 'sum so far'].map((t) => element('th', { scope: 'col' }, t)));
  const parts = [element('h3', {}, `${name}[${r}, ${c}] = ${textOf(w.at(name, r, c))}`), element('p', {}, text)];
  if (inputs) parts.push(element('p', {}, 'From ', ...inputs.map((place) => numberButton(w, place))));
  if (rows.length) {
    parts.push(element('div', { class: 'terms', tabindex: 0 }, element('table', {}, element('thead', {}, head),
      element('tbody', {}, ...rows))));
  }
  $('walk-sum').replaceChildren(...parts);
  $('walk-sum').dataset.total = total;
}

/* The weights in the order of the equation, and each head's part of them. */
const PARAMETERS = ['W_Q', 'b_Q', 'W_K', 'b_K', 'W_V', 'b_V', 'W_O', 'b_O', 'bias_k', 'bias_v', 'sinks', 'q_norm', 'k_norm'];

function partOf(w, name, h, kv) {
  const { rows, columns } = w.array(name), heads = name.endsWith('Q') ? h : kv;
  if (name === 'W_O') return `(${rows / h}, ${columns})`;
  if (/^[Wb]_[QKV]$/.test(name)) return name[0] === 'b' ? `(${columns / heads})` : `(${rows}, ${columns / heads})`;
  return '';
}

function drawParameters(w) {
  const names = PARAMETERS.filter(w.knows), choices = [];
  const { h, kvHeads } = w.layer, width = w.knows('W_Q') ? w.array('W_Q').columns : 0;
  for (let n = 1; n <= width; n++) if (width % n === 0 && w.array('W_O').rows % n === 0) choices.push(n);
  const slider = $('walk-heads'), fixed = kvHeads < h || choices.length === 0;
  $('walk-slider').hidden = fixed;
  slider.max = Math.max(0, choices.length - 1);
  const chosen = fixed ? h : choices[Math.min(Number(slider.value), choices.length - 1)];
  const many = chosen === h ? [h, kvHeads] : [chosen, chosen];
  let total = 0;
  const rows = names.map((name) => {
    const array = w.array(name), count = array.rows * array.columns;
    total += count;
    return [name, array.rows === 1 ? `(${array.columns})` : `(${array.rows}, ${array.columns})`, partOf(w, name, ...many),
      count.toLocaleString('en')];
  });
  rows.push(['total', '', '', total.toLocaleString('en')]);
  $('walk-parameters').tBodies[0].replaceChildren(...rows.map((row) => element('tr', {},
    ...row.map((text, n) => element(n ? 'td' : 'th', n ? {} : { scope: 'row' }, text)))));
  $('walk-heads-text').textContent = `${chosen} heads of ${width / chosen || w.layer.d_k}: `
    + `slices ${chosen === h ? 'as this layer has them' : 'as they would be'}, the same total`;
  return choices.indexOf(h);
}

/* ---------------------------------------------------------------- drawing */

function drawWalk() {
  const head = chosenHead(), { walk } = head.layer;
  const here = typeof walk === 'object' && walk.sequence === head.sequence && head.head >= walk.firstHead
    && head.head < walk.firstHead + walk.heads && head.poolRows * head.poolColumns === 1;
  $('walk-body').hidden = !here;
  $('walk-note').textContent = here ? 'Every number is the layer’s own, in float64. The query and the key are those of '
    + 'the cell chosen above.' : typeof walk === 'string' && walk ? walk
    : 'Only weights are known here, not the numbers behind them.';
  if (!here) return;
  const w = walkAt(head, head.firstQuery + state.row, head.firstKey + state.column);
  w.j = Math.min(w.j, w.array('k_rot').rows - 1);
  $('walk').replaceChildren(...panelsOf(w).map((p, index) => panel(w, p, index)));
  drawSum(w);
  const present = drawParameters(w);
  if ($('walk-heads').dataset.set !== 'yes') {
    $('walk-heads').value = present;
    $('walk-heads').dataset.set = 'yes';
    drawParameters(w);
  }
}
