// Charts, questions before what cannot be undone, and a notice when the service does not answer.
'use strict';
(() => {
  const charts = new Map();
  const colour = name => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  const KINDS = {
    actual: {width: 2}, decided: {width: 1.5, dash: [6, 4]}, expected: {width: 2, dash: [2, 3]},
    planned: {width: 1.5}, before: {width: 1.5, dash: [6, 4]}, standin: {width: 4},
  };

  function draw(element) {
    const given = JSON.parse(element.dataset.plot);
    const shown = given.lines.filter(line => line.values.some(value => value !== null));
    const axis = {stroke: colour('muted'), grid: {stroke: colour('line'), width: 1}, ticks: {stroke: colour('line'), width: 1}, font: '12px system-ui'};
    const series = shown.map(line => ({
      label: line.name, stroke: colour(line.kind), ...KINDS[line.kind], spanGaps: false,
      points: {show: line.kind === 'standin', size: 5},
      paths: given.step ? uPlot.paths.stepped({align: 1}) : undefined,
      value: (_, value) => value === null ? '–' : `${Math.round(value * 10) / 10} ${given.unit}`,
    }));
    const mark = chart => {
      if (given.top === undefined) return;
      const y = chart.valToPos(given.top, 'y', true);
      chart.ctx.save();
      chart.ctx.strokeStyle = colour('rule');
      chart.ctx.beginPath();
      chart.ctx.moveTo(chart.bbox.left, y);
      chart.ctx.lineTo(chart.bbox.left + chart.bbox.width, y);
      chart.ctx.stroke();
      chart.ctx.restore();
    };
    const range = (_, low, high) => given.top === undefined
      ? uPlot.rangeNum(low ?? 0, high ?? 1, 0.1, true) : [0, Math.max(given.top, high ?? 0) * 1.05];
    const options = {
      width: Math.max(element.clientWidth, 200), height: 210, tzDate: time => uPlot.tzDate(new Date(time * 1e3), 'Etc/UTC'),
      series: [{label: 'UTC', value: '{D} {MMM} {HH}:{mm}'}, ...series],
      axes: [{...axis, values: [[86400, '{D} {MMM}', null, null, null, null, null, null, 1], [3600, '{HH}:{mm}', '\n{D} {MMM}', null, '\n{D} {MMM}', null, null, null, 1], [60, '{HH}:{mm}', '\n{D} {MMM}', null, '\n{D} {MMM}', null, null, null, 1]]},
        {...axis, label: given.unit, labelFont: '12px system-ui', labelSize: 18, size: 48}],
      scales: {y: {range}}, hooks: {draw: [mark]}, cursor: {y: false, points: {size: 6}},
    };
    element.replaceChildren();
    charts.set(element, new uPlot(options, [given.x, ...shown.map(line => line.values)], element));
  }

  function drawAll() {
    for (const [element, chart] of charts) {
      if (!element.isConnected) { chart.destroy(); charts.delete(element); }
    }
    document.querySelectorAll('.plot[data-plot]').forEach(element => { if (!charts.has(element)) draw(element); });
  }

  const silent = document.getElementById('silent');
  let answered = new Date();
  const answers = good => {
    if (good) answered = new Date();
    silent.querySelector('span').textContent = `${answered.toISOString().slice(11, 19)} UTC by this computer's clock`;
    silent.hidden = good;
  };
  document.addEventListener('htmx:afterSettle', drawAll);
  document.addEventListener('htmx:sendError', () => answers(false));
  document.addEventListener('htmx:responseError', () => answers(false));
  document.addEventListener('htmx:afterOnLoad', event => answers(event.detail.xhr.status < 400));
  document.addEventListener('submit', event => {
    const question = event.target.dataset.confirm;
    if (question && !window.confirm(question)) event.preventDefault();
  });
  window.addEventListener('resize', () => {
    for (const [element, chart] of charts) chart.setSize({width: Math.max(element.clientWidth, 200), height: 210});
  });
  window.matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => {
    for (const element of [...charts.keys()]) { charts.get(element).destroy(); charts.delete(element); }
    drawAll();
  });
  drawAll();
})();
