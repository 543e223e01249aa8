/* Draws the map of a head: its cells as pixels, and around them labels and a colour bar as SVG. */

const SVG = 'http://www.w3.org/2000/svg';

/* Sizes in pixels, of heads and of other tensors: the largest side of a map; the largest side of a cell; the smallest
 * cell that has a label of its own; the smallest to which a narrow screen shrinks larger ones; room for labels; the
 * length of the colour bar, which is below the map, and room around it. */
const MAP = { side: 620, cell: 64, label: 11, finger: 14, left: 96, top: 84, bar: 160, right: 12, bottom: 48 };
const PLAIN = { ...MAP, side: 230, cell: 28, finger: 0, left: 40, top: 58 };

const isDark = () => document.documentElement.dataset.theme === 'dark';

/* The colour bytes of a share from 0 to 1; on a dark ground a sequential scale is read backwards, so that more stands
 * out. */
function colourAt(colours, share, isDiverging = false) {
  const step = Math.round(255 * Math.min(Math.max(share, 0), 1));
  const at = 3 * (isDark() && !isDiverging ? 255 - step : step);
  return [colours[at], colours[at + 1], colours[at + 2]];
}

/* ---------------------------------------------------------------- scales */

/* The largest visible weight of cells [from, to), without key 0 if `rest`. */
function largest(weights, from, to) {
  let most = 0;
  for (let i = from; i < to; i++) if (weights[i] > most) most = weights[i];
  return most;
}

/* Each scale: share(weight, row) is the place of a weight in the colour bar, and ticks the numbers beside it. `rest` takes
 * the weights of each row over those that are left when key 0 is taken away: the scale that is left is linear. */
function scaleOf(name, head, weights) {
  const columns = head.columns;
  const most = largest(weights, 0, weights.length) || 1;
  const linear = [0, 0.25, 0.5, 0.75, 1];
  if (name === 'log') {
    const decades = [0, -2, -4, -6];
    return { title: 'weight', share: (w) => (w > 0 ? Math.max(0, 1 + Math.log10(w) / 6) : 0),
      ticks: decades.map((d) => [1 + d / 6, d === 0 ? '1' : `1e−${-d}`]) };
  }
  if (name === 'row') {
    const rows = Array.from({ length: head.rows }, (_, r) => largest(weights, r * columns, (r + 1) * columns) || 1);
    return { title: 'share', share: (w, r) => w / rows[r], ticks: linear.map((s) => [s, s === 1 ? '1: row’s largest' : textOf(s)]) };
  }
  if (name === 'rest') {
    const rows = Array.from({ length: head.rows }, (_, r) => {
      let sum = 0;
      for (let c = head.firstKey === 0 ? 1 : 0; c < columns; c++) sum += Math.max(0, weights[r * columns + c]) || 0;
      return sum || 1;
    });
    return { title: 'weight', share: (w, r, c) => (c === 0 && head.firstKey === 0 ? 0 : w / rows[r]),
      ticks: linear.map((s) => [s, textOf(s)]) };
  }
  return { title: 'weight', share: (w) => w / most, ticks: linear.map((s) => [s, textOf(Number((s * most).toPrecision(3)))]) };
}

/* ---------------------------------------------------------------- pixels */

/* The pixels of 256 steps of a scale, and of NaN behind them. */
function pixelTable(colours, isDiverging) {
  const bytes = new Uint8Array(4 * 257);
  for (let step = 0; step < 256; step++) bytes.set([...colourAt(colours, step / 255, isDiverging), 255], 4 * step);
  bytes.set([255, 0, 160, 255], 4 * 256);
  return new Uint32Array(bytes.buffer);
}

/* A canvas with a pixel for each cell. Hidden cells stay transparent: the ground behind them is hatched. Pages have up
 * to eight million cells: nothing is made for any one of them. */
function pixelsOf(head, weights, scale, colours) {
  const canvas = document.createElement('canvas');
  canvas.width = Math.max(1, head.columns);
  canvas.height = Math.max(1, head.rows);
  const context = canvas.getContext('2d');
  const image = context.createImageData(canvas.width, canvas.height), pixels = new Uint32Array(image.data.buffer);
  const table = pixelTable(colours, scale.isDiverging), { share } = scale;
  for (let r = 0, i = 0; r < head.rows; r++) {
    for (let c = 0; c < head.columns; c++, i++) {
      const w = weights[i];
      if (w === HIDDEN) continue;
      const s = share(w, r, c);
      pixels[i] = table[w !== w ? 256 : s > 0 ? (s < 1 ? Math.round(255 * s) : 255) : 0];
    }
  }
  context.putImageData(image, 0, 0);
  return canvas;
}

/* A canvas enlarged until no program that smooths images can blur its cells: on paper, in viewers of drawings. */
function enlarged(canvas, side = 1024) {
  const factor = Math.max(1, Math.floor(side / Math.max(canvas.width, canvas.height)));
  const large = document.createElement('canvas');
  [large.width, large.height] = [factor * canvas.width, factor * canvas.height];
  const context = large.getContext('2d');
  context.imageSmoothingEnabled = false;
  context.drawImage(canvas, 0, 0, large.width, large.height);
  return large;
}

/* ---------------------------------------------------------------- SVG */

function svg(name, attributes, ...children) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

const styleOf = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/* Where the parts of a head's picture lie. */
function layoutOf(head) {
  const rows = Math.max(1, head.rows), columns = Math.max(1, head.columns);
  const { side, cell: largestCell, finger, left, top, bar, right, bottom } = head.isPlain ? PLAIN : MAP;
  const count = Math.max(rows, columns), room = Math.min(side, document.body.clientWidth - 32 - left - right);
  const cell = Math.min(largestCell, Math.max(room / count, Math.min(finger, side / count)));
  const width = cell * columns, height = cell * rows;
  return { cell, width, height, left, top, whole: [left + Math.max(width, bar + 80) + right, top + height + bottom] };
}

/* The row and column of a head's picture that an event points at; null outside the map. */
function cellAt(event, picture, head) {
  const layout = layoutOf(head), box = picture.getBoundingClientRect(), scale = layout.whole[0] / box.width;
  const column = Math.floor(((event.clientX - box.left) * scale - layout.left) / layout.cell);
  const row = Math.floor(((event.clientY - box.top) * scale - layout.top) / layout.cell);
  return row >= 0 && row < head.rows && column >= 0 && column < head.columns ? [row, column] : null;
}

/* A label: a token with its position, or only the position. Tokens show their blanks. */
function labelOf(data, head, index, isKey) {
  const position = isKey ? index : index + head.layer.offset;
  const token = head.isPlain ? undefined : data.tokens[position];
  return token === undefined ? String(index) : `${visible(token)} ${index}`;
}

/* A token: short, and with its blanks to be seen. */
function visible(token) {
  const shown = token.replace(/ /g, '\u00b7');
  return shown.length > 11 ? `${shown.slice(0, 10)}…` : shown;
}

/* Labels of one axis: each cell its own where there is room, else about eight numbers. */
function axisLabels(data, head, layout, isKey) {
  const count = isKey ? head.columns : head.rows;
  const pool = isKey ? head.poolColumns : head.poolRows;
  const first = isKey ? head.firstKey : head.firstQuery;
  const step = layout.cell >= MAP.label ? 1 : Math.max(Math.ceil(MAP.label / layout.cell), Math.ceil(count / 8));
  const labels = [];
  for (let i = 0; i < count; i += step) {
    const at = (i + 0.5) * layout.cell;
    const x = isKey ? layout.left + at : layout.left - 6, y = isKey ? layout.top - 6 : layout.top + at;
    const attributes = isKey ? { transform: `translate(${x} ${y}) rotate(-60)`, 'dominant-baseline': 'middle' }
      : { x, y, 'text-anchor': 'end', 'dominant-baseline': 'middle' };
    const name = step > 1 ? String(first + i * pool) : labelOf(data, head, first + i * pool, isKey);
    labels.push(svg('text', attributes, name));
  }
  return labels;
}

function colourBar(scale, colours, layout) {
  const steps = 80, height = 12, x = layout.left, y = layout.top + layout.height + 12, end = x + MAP.bar;
  const parts = [svg('text', { x: x - 6, y: y + 10, 'text-anchor': 'end', fill: styleOf('--faint') }, scale.title)];
  for (let i = 0; i < steps; i++) {
    const colour = colourAt(colours, (i + 0.5) / steps, scale.isDiverging);
    parts.push(svg('rect', { x: x + MAP.bar * i / steps, y, width: MAP.bar / steps + 0.5, height, fill: `rgb(${colour})` }));
  }
  for (const [share, text] of scale.ticks) {
    parts.push(svg('text', { class: 'tick', x: x + MAP.bar * share, y: y + 26, 'text-anchor': 'middle' }, text));
  }
  return [...parts, svg('rect', { x: end + 20, y, width: 18, height, fill: 'url(#hatch)', stroke: styleOf('--line') }),
    svg('text', { x: end + 42, y: y + 10 }, 'hidden')];
}

function hatch() {
  return svg('defs', {}, svg('pattern', { id: 'hatch', width: 6, height: 6, patternUnits: 'userSpaceOnUse',
    patternTransform: 'rotate(45)' }, svg('rect', { width: 6, height: 6, fill: styleOf('--ground') }),
  svg('line', { x1: 0, y1: 0, x2: 0, y2: 6, stroke: styleOf('--line'), 'stroke-width': 2 })));
}

/* The picture of a head's cells. Everything that it needs is in it, so that it can be saved as it is. */
function pictureOf(data, head, cells, scale, colours, what) {
  const layout = layoutOf(head);
  const [width, height] = layout.whole;
  const map = { x: layout.left, y: layout.top, width: layout.width, height: layout.height };
  const picture = svg('svg', { viewBox: `0 0 ${width} ${height}`, width, height, role: 'img', tabindex: 0,
    'aria-label': head.isPlain ? `${what}: rows from top to bottom, columns from left to right`
      : `${what}: queries from top to bottom, keys from left to right`,
    'font-family': 'system-ui, sans-serif', 'font-size': 11, fill: styleOf('--ink') });
  picture.append(hatch(), svg('rect', { width, height, fill: styleOf('--ground') }),
    svg('rect', { ...map, fill: 'url(#hatch)' }),
    svg('image', { ...map, href: enlarged(pixelsOf(head, cells, scale, colours)).toDataURL(), preserveAspectRatio: 'none',
      style: 'image-rendering: pixelated' }),
    svg('rect', { ...map, fill: 'none', stroke: styleOf('--line') }),
    svg('text', head.isPlain ? { x: 0, y: 12, fill: styleOf('--faint') }
      : { x: layout.left - 6, y: layout.top - 8, 'text-anchor': 'end', fill: styleOf('--faint') },
    head.isPlain ? 'row ↓  column →' : 'query ↓  key →'),
    ...axisLabels(data, head, layout, true), ...axisLabels(data, head, layout, false),
    ...colourBar(scale, colours, layout));
  return picture;
}

function nameOf(head) {
  const { layer } = head;
  const place = layer.name ? layer.name.replace(/\.$/, '') : `layer ${head.layerIndex}`;
  return `${place}, head ${head.head}${layer.sequences > 1 ? `, sequence ${head.sequence}` : ''}`;
}
