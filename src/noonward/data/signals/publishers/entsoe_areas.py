"""ENTSO-E's bidding zones: the zone of this package that each of them is, by its name and by its energy code."""

from __future__ import annotations

from typing import Final

_BY_NAME: Final = {
    "DE-LU": "DE", "DE-AT-LU": "DE", "IE(SEM)": "IE", "SEM": "IE", "UK": "GB",
    "IT-NORTH": "IT-NO", "IT-NORD": "IT-NO", "IT-CENTRE-NORTH": "IT-CNO", "IT-CNOR": "IT-CNO",
    "IT-CENTRE-SOUTH": "IT-CSO", "IT-CSUD": "IT-CSO", "IT-SOUTH": "IT-SO", "IT-SUD": "IT-SO",
    "IT-SARDINIA": "IT-SAR", "IT-SARD": "IT-SAR", "IT-SICILY": "IT-SIC", "IT-SICI": "IT-SIC",
    **{f"SE{n}": f"SE-SE{n}" for n in range(1, 5)},
    **{f"NO{n}": f"NO-NO{n}" for n in range(1, 6)},
    **{f"DK{n}": f"DK-DK{n}" for n in range(1, 3)},
}  # fmt: skip

BY_CODE: Final = {
    "10Y1001A1001A82H": "DE", "10Y1001A1001A63L": "DE", "10YAT-APG------L": "AT", "10YBE----------2": "BE",
    "10YCA-BULGARIA-R": "BG", "10YCH-SWISSGRIDZ": "CH", "10YCZ-CEPS-----N": "CZ", "10YDK-1--------W": "DK-DK1",
    "10YDK-2--------M": "DK-DK2", "10Y1001A1001A39I": "EE", "10YES-REE------0": "ES", "10YFI-1--------U": "FI",
    "10YFR-RTE------C": "FR", "10YGB----------A": "GB", "10YGR-HTSO-----Y": "GR", "10YHR-HEP------M": "HR",
    "10YHU-MAVIR----U": "HU", "10Y1001A1001A59C": "IE", "10Y1001A1001A73I": "IT-NO", "10Y1001A1001A70O": "IT-CNO",
    "10Y1001A1001A71M": "IT-CSO", "10Y1001A1001A788": "IT-SO", "10Y1001A1001A74G": "IT-SAR",
    "10Y1001A1001A75E": "IT-SIC", "10YLT-1001A0008Q": "LT", "10YLV-1001A00074": "LV", "10YNL----------L": "NL",
    "10YNO-1--------2": "NO-NO1", "10YNO-2--------T": "NO-NO2", "10YNO-3--------J": "NO-NO3",
    "10YNO-4--------9": "NO-NO4", "10Y1001A1001A48H": "NO-NO5", "10YPL-AREA-----S": "PL", "10YPT-REN------W": "PT",
    "10YRO-TEL------P": "RO", "10YCS-SERBIATSOV": "RS", "10Y1001A1001A44P": "SE-SE1", "10Y1001A1001A45N": "SE-SE2",
    "10Y1001A1001A46L": "SE-SE3", "10Y1001A1001A47J": "SE-SE4", "10YSI-ELES-----O": "SI", "10YSK-SEPS-----K": "SK",
}  # fmt: skip
"""Zone by energy identification code of the bidding zone."""


def zone_of_area(area: str) -> str:
    """Returns the zone of a bidding zone by its name or code; a name that is not in the table is its own zone.

    Example:
        >>> [zone_of_area(area) for area in ("BZN|DE-LU", "SE3 BZN", "DE_LU", "FR", "10YPL-AREA-----S")]
        ['DE', 'SE-SE3', 'DE', 'FR', 'PL']
    """
    bare = area.partition("|")[2] or area
    if bare in BY_CODE:
        return BY_CODE[bare]
    bare = bare.removesuffix(" BZN").removesuffix(" CTA").strip().replace("_", "-")
    return _BY_NAME.get(bare.upper(), bare)
