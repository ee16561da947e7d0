"""The Cricket API of SportMonks as a provider."""

BASE_URL = "https://cricket.sportmonks.com/api/v2.0/"
