"""A stand-in for the publishers of prices and intensities, on the loopback: hand-made replies in their shapes."""

import base64
import json
import threading
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

HOUR = timedelta(hours=1)
LB = 0.45359237


def carbon(time):
    """The intensity of an hour, g/kWh."""
    return 200.0 + 10.0 * time.hour + time.day


def price(time):
    """The price of an hour in the publisher's currency."""
    return 50.0 + time.hour - time.day


def utc(text):
    return datetime.fromisoformat(text.replace("Z", "+00:00")).astimezone(UTC)


def iso(time):
    return time.strftime("%Y-%m-%dT%H:%M:%S.000Z")


class GridServer:
    """Serves until it is closed.

    Attributes:
        now: Its time.
        seen: Paths asked for, with their queries.
        trouble: What it answers instead: status, body and headers; None: nothing is wrong.
    """

    def __init__(self, now):
        self.now, self.seen, self.trouble, self.tokens = now, [], None, 0
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                parts = urlsplit(self.path)
                query = {name: values[0] for name, values in parse_qs(parts.query).items()}
                server.seen.append((parts.path, query))
                status, body, headers = server.trouble or server.answer(parts.path, query, self.headers)
                self.send_response(status)
                for name, value in {"Content-Length": str(len(body)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    def close(self):
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def answer(self, path, query, headers):
        """Returns status, body and headers of a right answer."""
        if path.startswith("/v3/carbon-intensity/"):
            found = self._electricity_maps(path.rsplit("/", 1)[1], query, headers)
        elif path == "/login":
            right = "Basic " + base64.b64encode(b"me:secret").decode()
            if headers.get("Authorization") != right:
                return 401, b"", {}
            self.tokens += 1
            found = {"token": f"token{self.tokens}"}
        elif path.startswith("/v3/"):
            if headers.get("Authorization") != f"Bearer token{self.tokens}":
                return 401, b"{}", {}
            found = self._watttime(path, query)
        elif path.startswith("/intensity/"):
            found = self._gb(*path.split("/")[2:4])
        elif path == "/api":
            return 200, self._entsoe(query).encode(), {}
        elif path.startswith("/aemo/"):
            return 200, self._aemo(path).encode(), {}
        elif path.startswith("/public/"):
            return 200, self._ieso(path).encode(), {}
        elif path.startswith("/emissions/"):
            found = self._carbon_aware(path, query)
        else:
            return 404, b"", {}
        return 200, json.dumps(found).encode(), {}

    def _electricity_maps(self, kind, query, headers):
        if headers.get("auth-token") != "key":
            return {"status": "error"}

        def points(start, count, estimated=()):
            return [
                {
                    "zone": query["zone"], "carbonIntensity": carbon(start + h * HOUR),
                    "datetime": iso(start + h * HOUR), "isEstimated": h in estimated, "emissionFactorType": "lifecycle",
                }
                for h in range(count)
            ]  # fmt: skip

        hour = self.now.replace(minute=0)
        if kind == "history":
            return {"zone": query["zone"], "history": points(hour - 23 * HOUR, 24, estimated=(23,))}
        if kind == "past-range":
            start, end = utc(query["start"]).replace(minute=0), utc(query["end"])
            return {"zone": query["zone"], "data": points(start, int((end - start) / HOUR))}
        return {"zone": query["zone"], "forecast": points(hour, 24), "updatedAt": iso(self.now)}

    def _watttime(self, path, query):
        start = utc(query["start"]) if "start" in query else self.now.replace(minute=0)
        count = round((utc(query["end"]) - start) / timedelta(minutes=5)) if "end" in query else 12 * 24
        times = [start + n * timedelta(minutes=5) for n in range(count)]
        data = [{"point_time": iso(time), "value": carbon(time) / LB} for time in times]
        meta = {"region": query["region"], "signal_type": "co2_moer", "units": "lbs_co2_per_mwh"}
        return {"data": data, "meta": meta}

    def _gb(self, start, end):
        start, end, half = utc(start), utc(end), timedelta(minutes=30)
        return {
            "data": [
                {
                    "from": (start + n * half).strftime("%Y-%m-%dT%H:%MZ"),
                    "intensity": {
                        "forecast": carbon(start + n * half) + 1.0,
                        "actual": carbon(start + n * half) if start + (n + 1) * half <= self.now else None,
                    },
                }
                for n in range(round((end - start) / half))
            ]
        }

    def _entsoe(self, query):
        if query.get("securityToken") != "key":
            return "<Acknowledgement_MarketDocument/>"
        start = datetime.strptime(query["periodStart"], "%Y%m%d%H%M").replace(tzinfo=UTC)
        end = datetime.strptime(query["periodEnd"], "%Y%m%d%H%M").replace(tzinfo=UTC)
        quarters = range(round((end - start) / timedelta(minutes=15)))
        points = "".join(  # every fourth position alone: a curve A03 leaves out what repeats
            f"<Point><position>{q + 1}</position><price.amount>{price(start + q / 4 * HOUR)}</price.amount></Point>"
            for q in quarters
            if q % 4 == 0
        )
        return (
            "<Publication_MarketDocument><TimeSeries><in_Domain.mRID>10YFR-RTE------C</in_Domain.mRID>"
            "<out_Domain.mRID>10YFR-RTE------C</out_Domain.mRID><currency_Unit.name>EUR</currency_Unit.name>"
            "<price_Measure_Unit.name>MWH</price_Measure_Unit.name><curveType>A03</curveType><Period><timeInterval>"
            f"<start>{start:%Y-%m-%dT%H:%M}Z</start><end>{end:%Y-%m-%dT%H:%M}Z</end></timeInterval>"
            f"<resolution>PT15M</resolution>{points}</Period></TimeSeries></Publication_MarketDocument>"
        )

    def _aemo(self, path):
        month, region = path.rsplit("_", 2)[1], path.rsplit("_", 1)[1].removesuffix(".csv")
        market = timedelta(hours=10)
        end = datetime(int(month[:4]), int(month[4:]), 1) + timedelta(minutes=5)
        rows = ["REGION,SETTLEMENTDATE,TOTALDEMAND,RRP,PERIODTYPE"]
        while (end - market).replace(tzinfo=UTC) <= self.now and end.month == int(month[4:]):
            start = (end - timedelta(minutes=5) - market).replace(tzinfo=UTC)
            rows.append(f"{region},{end:%Y/%m/%d %H:%M:%S},8000,{price(start)},TRADE")
            end += timedelta(minutes=5)
        return "\r\n".join(rows)

    def _ieso(self, path):
        day = datetime.strptime(path.rsplit("_", 1)[1], "%Y%m%d.xml").replace(tzinfo=UTC)
        hours = "".join(
            f"<HourlyPriceComponents><PricingHour>{h}</PricingHour>"
            f"<ZonalPrice>{price(day + (h - 1 + 5) * HOUR)}</ZonalPrice></HourlyPriceComponents>"
            for h in range(1, 25)
        )
        return (
            '<Document xmlns="http://www.ieso.ca/schema"><DocBody>'
            f"<DeliveryDate>{day:%Y-%m-%d}</DeliveryDate>{hours}</DocBody></Document>"
        )

    def _carbon_aware(self, path, query):
        five = timedelta(minutes=5)
        if path.endswith("current"):
            start = self.now.replace(minute=0)
            data = [{"timestamp": iso(start + n * five), "duration": 5, "value": carbon(start + n * five)}
                    for n in range(288)]  # fmt: skip
            return [{"location": query["location"], "optimalDataPoints": data[:1], "forecastData": data}]
        start, end = utc(query["time"]), utc(query["toTime"])
        return [
            {"location": query["location"], "time": iso(start + n * five), "rating": carbon(start + n * five)}
            for n in range(round((end - start) / five))
        ]
