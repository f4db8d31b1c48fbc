const specs = JSON.parse(document.getElementById("specs").textContent);
for (const { datasets } of Object.values(specs)) {  // their rows come as columns
  for (const [name, columns] of Object.entries(datasets)) {
    const names = Object.keys(columns);
    datasets[name] = (columns[names[0]] ?? []).map((_, i) => Object.fromEntries(names.map(name => [name, columns[name][i]])));
  }
}
function give(name, type, text) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type }));
  link.download = name;
  link.click();
  URL.revokeObjectURL(link.href);
}
function csv(rows) {
  const names = Object.keys(rows[0] ?? {});
  const cell = v => v === null || v === undefined ? "" : /[",\n]/.test(v) ? `"${String(v).replaceAll('"', '""')}"` : v;
  return [names, ...rows.map(row => names.map(name => row[name]))].map(row => row.map(cell).join(",")).join("\n") + "\n";
}
document.addEventListener("click", event => {
  const { csv: table, json: spec } = event.target.dataset ?? {};
  if (table) {
    const { datasets, usermeta } = specs[table], { campaign } = usermeta.crosslayer;
    give(`${table}.csv`, "text/csv", csv(Object.values(datasets)[0].map(row => ({ ...row, campaign }))));
  }
  if (spec) give(`${spec}.vl.json`, "application/json", JSON.stringify(specs[spec], null, 1));
});

const captured = JSON.parse(document.getElementById("captured")?.textContent ?? "[]");
const dialog = document.querySelector("#loads dialog");
// The loads behind a point: of its link and page where it has them, those that it names first, then the nearest in time.
function behind(datum) {
  const values = Object.values(datum), numbers = values.filter(value => typeof value === "number");
  const words = values.filter(value => typeof value === "string").join(" ").toLowerCase();
  const known = name => new Set(captured.map(load => load.conditions[name]));
  const places = ["link", "page"].filter(name => known(name).has(datum[name]));
  const named = load => Object.entries(load.conditions)
    .filter(([name, word]) => !places.includes(name) && word.length > 1 && words.includes(word.toLowerCase())).length;
  const apart = load => Math.min(...numbers.map(number => Math.abs(number - (load.ms ?? Infinity))));
  return captured.filter(load => places.every(name => load.conditions[name] === datum[name]))
    .map(load => ({ load, named: named(load), apart: apart(load) }))
    .toSorted((a, b) => b.named - a.named || a.apart - b.apart || 0).map(({ load }) => load);
}
function offer(event, item) {
  const datum = item?.datum?.datum ?? item?.datum;
  if (!dialog || !datum || typeof datum !== "object") return;
  const loads = behind(datum);
  if (!loads.length) return;
  dialog.querySelector("ul").replaceChildren(...loads.slice(0, 12).map(({ href, ms, conditions }) => {
    const row = document.createElement("li"), link = document.createElement("a");
    link.href = href;
    link.textContent = ms === null ? "no time" : `${ms.toFixed(1)} ms`;
    row.append(link, ` ${Object.values(conditions).join(", ")}`);
    return row;
  }));
  dialog.showModal();
}

const dark = matchMedia("(prefers-color-scheme: dark)").matches;
// The font of the pictures: with a wider one, labels would overlap.
const loaded = Object.entries(fonts).map(async ([weight, data]) => document.fonts.add(
  await new FontFace("Crosslayer Sans", Uint8Array.from(atob(data), c => c.charCodeAt(0)), { weight }).load()));
async function draw() {
  let drawn = 0;
  await Promise.allSettled(loaded);
  for (const place of document.querySelectorAll(".chart")) {
    const stage = document.createElement("div");
    try {
      const { view } = await vegaEmbed(stage, specs[place.dataset.name],
        { renderer: "svg", actions: false, logLevel: 1, tooltip: { theme: dark ? "dark" : "light" } });
      view.addEventListener("click", offer);
      const alternative = place.querySelector("img")?.alt;
      const svg = view.container().querySelector("svg");
      svg.setAttribute("role", "img");
      svg.setAttribute("aria-label", alternative ?? place.dataset.name);
      // The marks have roles without names.
      for (const part of svg.children) part.setAttribute("aria-hidden", "true");
      place.replaceChildren(stage);
      drawn += 1;
    } catch (error) { console.error(place.dataset.name, error); }  // the picture stays
    await new Promise(done => setTimeout(done));
  }
  document.documentElement.dataset.drawn = drawn;
}
draw();
