/* The difference of two layers of the same shape, head by head: a, b, a - b, and where it is largest. */

/* Numbers as near as this may differ by rounding; farther apart, the steps between them say nothing. */
const FEW_STEPS = 10000;

/* The number of float32 values from a to b; NaN and infinities have no distance. */
function ulps(a, b) {
  if (!Number.isFinite(a) || !Number.isFinite(b)) return NaN;
  const bits = new Int32Array(new Float32Array([a, b]).buffer);
  const [x, y] = [...bits].map((i) => (i < 0 ? -(i & 0x7fffffff) : i));
  return Math.abs(x - y);
}

const isAlike = (a, b) => a.heads.length === b.heads.length && a.heads.every((head, i) => {
  const other = b.heads[i];
  return ['rows', 'columns', 'sequence', 'head', 'firstQuery', 'firstKey', 'poolRows', 'poolColumns']
    .every((key) => head[key] === other[key]);
});

/* The cells of a - b, and what is said of them. A cell that is hidden in one and 0 in the other does not differ: not
 * every file says what is hidden. */
function differenceOf(head, other) {
  const a = data.numbers(head.weights), b = data.numbers(other.weights), cells = new Float64Array(a.length);
  const found = { cells, most: 0, at: 0, differing: 0, visibility: 0, broken: 0 };
  for (let i = 0; i < a.length; i++) {
    const x = a[i] === HIDDEN ? 0 : a[i], y = b[i] === HIDDEN ? 0 : b[i];
    const isHidden = (a[i] === HIDDEN || b[i] === HIDDEN) && x === y;
    cells[i] = isHidden ? HIDDEN : x - y;
    if (!isHidden && (a[i] === HIDDEN || b[i] === HIDDEN)) found.visibility += 1;
    if (Number.isNaN(cells[i]) && !(Number.isNaN(a[i]) && Number.isNaN(b[i]))) found.broken += 1;
    if (isHidden || cells[i] === 0 || Number.isNaN(cells[i])) continue;
    found.differing += 1;
    if (Math.abs(cells[i]) > found.most) [found.most, found.at] = [Math.abs(cells[i]), i];
  }
  return found;
}

/* Zero in the middle, the largest difference at both ends. */
function differenceScale(most, title) {
  const size = most || 1;
  return { title, isDiverging: true, share: (d) => 0.5 + d / (2 * size),
    ticks: [[0, textOf(Number((-size).toPrecision(3)))], [0.5, '0'], [1, textOf(Number(size.toPrecision(3)))]] };
}

function differencePairs() {
  const pairs = [];
  data.layers.forEach((a, i) => data.layers.forEach((b, j) => {
    if (i < j && isAlike(a, b)) pairs.push([i, j]);
  }));
  return pairs;
}

const layerName = (layer, index) => (layer.name || `layer ${index}`).replace(/\.$/, '');

/* Sentences about the difference of one head. */
function differenceFacts(head, other, found) {
  const { columns } = head, a = data.numbers(head.weights), b = data.numbers(other.weights);
  const row = Math.floor(found.at / columns), column = found.at % columns;
  const facts = [['cells that differ', `${found.differing} of ${found.cells.length}`]];
  if (found.most > 0) {
    facts.push(['largest', `${textOf(found.most)} at query ${indexText(head, row, false)}, key ${
      indexText(head, column, true)}`]);
    const steps = ulps(a[found.at], b[found.at]);
    facts.push(['a, b there', `${a[found.at] === HIDDEN ? 'hidden' : textOf(a[found.at])}, ${
      b[found.at] === HIDDEN ? 'hidden' : textOf(b[found.at])}${steps < FEW_STEPS ? `: ${
      steps.toLocaleString('en')} float32 steps` : ''}`]);
  }
  if (found.visibility) facts.push(['hidden in one alone', `${found.visibility} cells`]);
  if (found.broken) facts.push(['NaN in one alone', `${found.broken} cells`]);
  return facts;
}

/* The pair that is shown before one is chosen: one layer out of two files. Other layers are not compared unasked. */
function firstPair(pairs) {
  return pairs.findIndex(([i, j]) => data.layers[i].name === data.layers[j].name);
}

function drawDifference() {
  const pairs = differencePairs();
  $('difference-section').hidden = pairs.length === 0;
  if (pairs.length === 0) return;
  const select = $('difference-pair');
  if (select.options.length === 0) {
    select.append(element('option', { value: -1 }, 'choose two layers'),
      ...pairs.map(([i, j], n) => element('option', { value: n },
        `${layerName(data.layers[i], i)} − ${layerName(data.layers[j], j)}`)));
    select.value = firstPair(pairs);
  }
  $('difference').replaceChildren();
  if (Number(select.value) < 0) return;
  const [a, b] = pairs[Number(select.value)].map((i) => data.layers[i]);
  const index = Math.min(state.index, a.heads.length - 1), head = a.heads[index], other = b.heads[index];
  const found = differenceOf(head, other);
  const picture = pictureOf(data, head, found.cells, differenceScale(found.most, 'a − b'), data.numbers(data.diverging),
    `Difference of ${nameOf(head)} and ${nameOf(other)}`);
  picture.removeAttribute('tabindex');
  if (found.most > 0) {
    const layout = layoutOf(head);
    picture.append(svg('rect', { x: layout.left + (found.at % head.columns) * layout.cell,
      y: layout.top + Math.floor(found.at / head.columns) * layout.cell, width: layout.cell, height: layout.cell,
      fill: 'none', stroke: styleOf('--mark'), 'stroke-width': 2 }));
  }
  const facts = factsList(differenceFacts(head, other, found));
  const rows = a.heads.map((h, i) => [h, differenceOf(h, b.heads[i]).most]).sort((x, y) => y[1] - x[1]).slice(0, 12)
    .map(([h, most]) => {
      const button = element('button', { type: 'button' }, nameOf(h));
      button.addEventListener('click', () => chooseHead(h));
      return element('tr', {}, element('td', {}, button), element('td', {}, textOf(Number(most.toPrecision(4)))));
    });
  $('difference').replaceChildren(element('div', { class: 'map' }, picture),
    element('div', {}, element('p', {}, nameOf(head)), facts, element('table', {},
      element('caption', {}, 'Largest differences of heads'), element('tbody', {}, ...rows))));
}
