# syntax=docker/dockerfile:1
# The gateway, its pipelines and the embedded engine in one image: the command selects the process of a container.
# `docker build -t dynamodb-graphql-gateway .`; compose.yaml runs all processes. docs/deployment.md describes the settings.
ARG PYTHON=3.11
ARG NODE=22

FROM node:${NODE}-bookworm-slim AS web
WORKDIR /build
COPY package.json package-lock.json ./
RUN npm ci --no-fund --no-audit --loglevel=error
COPY web web
# The engine is an optional package: on a platform without it, the image is built without it.
RUN npm run --silent build && mkdir -p node_modules/@dynoxide

FROM python:${PYTHON}-slim-bookworm AS packages
WORKDIR /build
COPY requirements.txt ./
# Only wheels, verified by hash: nothing is compiled, so that no compiler is needed.
RUN python -m venv /opt/venv \
 && /opt/venv/bin/python -m pip install --no-cache-dir --disable-pip-version-check --no-compile \
    --require-hashes --only-binary :all: -r requirements.txt \
 && /opt/venv/bin/python -m pip uninstall --quiet --yes setuptools pip \
 && /opt/venv/bin/python -m compileall -q -j 0 --invalidation-mode unchecked-hash /opt/venv/lib

FROM python:${PYTHON}-slim-bookworm
RUN groupadd --system --gid 10001 gateway \
 && useradd --system --uid 10001 --gid gateway --home-dir /data --no-create-home --shell /usr/sbin/nologin gateway \
 && install -d -o gateway -g gateway -m 700 /data
WORKDIR /app
COPY --from=packages /opt/venv /opt/venv
COPY --from=web /build/node_modules/@dynoxide node_modules/@dynoxide
COPY --from=web /build/web/dist web/dist
COPY web/examples web/examples
COPY gateway.py ./
COPY datastore datastore
COPY jit jit
COPY pipelines pipelines
COPY resolvers resolvers
COPY runtime runtime
COPY schema schema
COPY server server
# The root may be read-only, so that all bytecode is compiled here.
RUN /opt/venv/bin/python -m compileall -q -j 0 --invalidation-mode unchecked-hash /app
ENV PATH=/opt/venv/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    GATEWAY_HOST=0.0.0.0 \
    GATEWAY_PORT=8000 \
    GATEWAY_DATA_DIR=/data \
    GATEWAY_DEMO=0 \
    GATEWAY_LOG_FORMAT=json
# The commit, for `--version`, the metrics and /healthz: docker build --build-arg REVISION=$(git rev-parse HEAD) …
ARG REVISION
ENV GATEWAY_REVISION=$REVISION
USER 10001:10001
VOLUME ["/data"]
EXPOSE 8000
# Checks that the process is alive. A load balancer uses /readyz to decide whether to send requests to it.
HEALTHCHECK --interval=10s --timeout=3s --start-period=30s --retries=3 \
    CMD ["python", "-I", "-c", "import os, urllib.request; urllib.request.urlopen(f'http://127.0.0.1:{os.environ[\"GATEWAY_PORT\"]}/healthz', timeout=2)"]
# No shell: the process itself receives SIGTERM. It handles the signal from its first moment on, also as process 1.
ENTRYPOINT ["python", "gateway.py"]
CMD ["serve"]
