"""Writes the packaged outline of the world's coasts from Natural Earth's land at 1:110 million (public domain).

    npm pack world-atlas@2.0.2 && tar xzf world-atlas-2.0.2.tgz
    python tools/coast_table.py package/land-110m.json

The package redistributes Natural Earth 4.1.0 as TopoJSON. Lines are simplified (Douglas and Peucker, 0.25 degrees) and
coordinates rounded to a tenth of a degree. Rings over the 180th meridian are written at both edges. Land south of 60
degrees south is left out.
"""

import json
import sys
from pathlib import Path

import numpy as np

OUT = Path(__file__).parents[1] / "src/noonward/data/tables/coast.json"
TOLERANCE = 0.25
SOUTHERNMOST = -60.0


def arcs_of(topology: dict) -> list[np.ndarray]:
    """Returns the arcs of a TopoJSON file as longitudes and latitudes."""
    scale, shift = (np.array(topology["transform"][key]) for key in ("scale", "translate"))
    return [np.cumsum(np.array(arc), axis=0) * scale + shift for arc in topology["arcs"]]


def rings_of(topology: dict) -> list[np.ndarray]:
    """Returns the rings of all polygons."""
    arcs = arcs_of(topology)
    rings = []
    for geometry in topology["objects"]["land"]["geometries"]:
        polygons = geometry["arcs"] if geometry["type"] == "MultiPolygon" else [geometry["arcs"]]
        for polygon in polygons:
            for ring in polygon:
                parts = [arcs[n] if n >= 0 else arcs[~n][::-1] for n in ring]
                rings.append(np.concatenate([parts[0], *(part[1:] for part in parts[1:])]))
    return rings


def simplified(line: np.ndarray, tolerance: float) -> np.ndarray:
    """Returns a line without the points that lie within a tolerance of it (Douglas and Peucker, 1973)."""
    if len(line) < 3:
        return line
    begin, end = line[0], line[-1]
    along = end - begin
    length = np.hypot(*along)
    if length == 0:
        away = np.hypot(*(line - begin).T)
    else:
        offset = line - begin
        away = np.abs(along[0] * offset[:, 1] - along[1] * offset[:, 0]) / length
    farthest = int(away.argmax())
    if away[farthest] <= tolerance:
        return np.array([begin, end])
    return np.concatenate([simplified(line[: farthest + 1], tolerance)[:-1], simplified(line[farthest:], tolerance)])


def unwrapped(ring: np.ndarray) -> list[np.ndarray]:
    """Returns a ring that crosses the 180th meridian as two whole ones, one beyond either edge of the map."""
    line = ring.copy()
    line[:, 0] = np.unwrap(ring[:, 0], period=360)
    line[:, 0] -= 360 * np.round(line[:, 0].mean() / 360)
    if abs(line[0, 0] - line[-1, 0]) > 1 or np.abs(line[:, 0]).max() <= 180:
        return [line]
    return [line, line - [360 * np.sign(line[np.abs(line[:, 0]).argmax(), 0]), 0]]


def main() -> None:
    """Writes the table."""
    topology = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    kept = []
    for ring in rings_of(topology):
        if ring[:, 1].max() < SOUTHERNMOST:
            continue
        for whole in unwrapped(ring):
            line = np.round(simplified(whole, TOLERANCE) * 10).astype(int)
            if len(line) >= 4:
                kept.append(line.ravel().tolist())
    about = (
        "Coasts of the world, rings of longitude and latitude in tenths of a degree. From Natural Earth 4.1.0, land at "
        "1:110 million (public domain, naturalearthdata.com), as redistributed by the npm package world-atlas 2.0.2 "
        "(ISC); simplified by tools/coast_table.py."
    )
    rings = ",\n  ".join(json.dumps(ring, separators=(",", ":")) for ring in sorted(kept, key=len, reverse=True))
    OUT.write_text(f'{{\n "about": {json.dumps(about)},\n "rings": [\n  {rings}\n ]\n}}\n', encoding="utf-8")
    print(f"{len(kept)} rings, {sum(map(len, kept)) // 2} points, {OUT.stat().st_size} bytes")


if __name__ == "__main__":
    main()
