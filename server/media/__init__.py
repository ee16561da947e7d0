"""Files over HTTP: uploads to the local object store and downloads from it."""
