const specs = JSON.parse(document.getElementById("specs").textContent);
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
  if (table) give(`${table}.csv`, "text/csv", csv(Object.values(specs[table].datasets)[0]));
  if (spec) give(`${spec}.vl.json`, "application/json", JSON.stringify(specs[spec], null, 1));
});
const dark = matchMedia("(prefers-color-scheme: dark)").matches;
async function draw() {
  let drawn = 0;
  for (const place of document.querySelectorAll(".chart")) {
    const stage = document.createElement("div");
    try {
      await vegaEmbed(stage, specs[place.dataset.name],
        { renderer: "svg", actions: false, logLevel: 1, tooltip: { theme: dark ? "dark" : "light" } });
      place.replaceChildren(stage);
      drawn += 1;
    } catch (error) { console.error(place.dataset.name, error); }  // the picture stays
    await new Promise(done => setTimeout(done));
  }
  document.documentElement.dataset.drawn = drawn;
}
draw();
