"""Files over HTTP: uploads and downloads of the local object store."""
