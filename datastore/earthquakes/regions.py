"""Regions of the world by which earthquakes are counted: a fixed list of rectangles. The first that matches counts."""

from enum import StrEnum


class SeismicRegion(StrEnum):
    """A region, with the code that items hold. A changed rectangle requires a rebuild of all statistics."""

    CALIFORNIA = "CA"
    PACIFIC_NORTHWEST = "NW"
    ALASKA = "AK"
    HAWAII = "HI"
    NORTH_AMERICA = "NA"
    CARIBBEAN = "CB"
    CENTRAL_AMERICA = "CM"
    SOUTH_AMERICA = "SA"
    JAPAN = "JP"
    KURILS_AND_KAMCHATKA = "KU"
    PHILIPPINES_AND_TAIWAN = "PH"
    INDONESIA = "ID"
    NEW_GUINEA_AND_MELANESIA = "ME"
    TONGA_AND_FIJI = "TO"
    NEW_ZEALAND = "NZ"
    CENTRAL_ASIA = "AS"
    MEDITERRANEAN_AND_MIDDLE_EAST = "MD"
    EUROPE_AND_NORTH_ATLANTIC = "EU"
    AFRICA = "AF"
    ELSEWHERE = "XX"


# South, west, north, east. A rectangle that crosses the 180th meridian has `west` above `east`.
BOXES = (
    (SeismicRegion.CALIFORNIA, 32.0, -125.5, 42.0, -114.0),
    (SeismicRegion.PACIFIC_NORTHWEST, 42.0, -131.0, 51.5, -116.5),
    (SeismicRegion.ALASKA, 50.0, 168.0, 72.0, -130.0),
    (SeismicRegion.HAWAII, 17.5, -161.0, 23.0, -154.0),
    (SeismicRegion.CARIBBEAN, 9.5, -76.0, 24.0, -59.0),
    (SeismicRegion.CENTRAL_AMERICA, 5.0, -119.0, 24.0, -76.0),
    (SeismicRegion.NORTH_AMERICA, 24.0, -131.0, 84.0, -52.0),
    (SeismicRegion.SOUTH_AMERICA, -58.0, -84.0, 13.0, -33.0),
    (SeismicRegion.JAPAN, 24.0, 127.0, 46.0, 146.5),
    (SeismicRegion.KURILS_AND_KAMCHATKA, 42.0, 144.0, 64.0, 168.0),
    (SeismicRegion.PHILIPPINES_AND_TAIWAN, 5.0, 117.0, 26.5, 129.0),
    (SeismicRegion.INDONESIA, -13.0, 92.0, 8.0, 131.0),
    (SeismicRegion.NEW_GUINEA_AND_MELANESIA, -24.0, 131.0, 3.0, 174.0),
    (SeismicRegion.TONGA_AND_FIJI, -33.5, 174.0, -12.0, -169.0),
    (SeismicRegion.NEW_ZEALAND, -56.0, 160.0, -33.5, -173.0),
    (SeismicRegion.CENTRAL_ASIA, 8.0, 60.0, 56.0, 127.0),
    (SeismicRegion.MEDITERRANEAN_AND_MIDDLE_EAST, 28.0, -10.0, 47.5, 60.0),
    (SeismicRegion.EUROPE_AND_NORTH_ATLANTIC, 28.0, -52.0, 84.0, 60.0),
    (SeismicRegion.AFRICA, -36.0, -20.0, 28.0, 60.0),
)


def region_of(latitude: float, longitude: float) -> SeismicRegion:
    """Return the region of a point given in degrees; `ELSEWHERE` where no rectangle holds it."""
    for region, south, west, north, east in BOXES:
        across = west > east
        if south <= latitude <= north and (
            (longitude >= west or longitude <= east) if across else west <= longitude <= east
        ):
            return region
    return SeismicRegion.ELSEWHERE
