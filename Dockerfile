# A portal over HTTP. It asks for a token, because it listens for other machines:
#
#   docker build -t mcp-code-portal .
#   docker run -p 127.0.0.1:8080:8080 -e MCP_CODE_PORTAL_TOKEN=change-me \
#     -v "$PWD/portal.yaml:/etc/mcp-code-portal/portal.yaml:ro" \
#     -v portal-state:/home/portal/.local/state mcp-code-portal
#
# With --read-only add --tmpfs /tmp:exec. The type checker's files are there and, on another processor than that of the
# build, the compiled sandbox, which is code.
#
# Upstreams that are commands need their programs in the image: derive one that installs uv, node or the servers.
# tests/packaging/test_image.py runs these commands without Docker.

FROM python:3.13-slim AS build
WORKDIR /source
COPY . .
ENV MCP_CODE_PORTAL_CACHE=/opt/mcp-code-portal/cache
RUN python -m pip wheel --no-cache-dir --no-deps --wheel-dir /wheel .
RUN python -m venv --without-pip /opt/mcp-code-portal \
 && python -m pip --python /opt/mcp-code-portal install --no-cache-dir --constraint constraints.txt "$(echo /wheel/*.whl)[postgres,telemetry]"
# Compiled for this machine's processor; on another one the portal compiles at each start, which takes 5 s.
RUN /opt/mcp-code-portal/bin/python -m sandbox_runtime.aot \
 && chmod -R a+rX "$MCP_CODE_PORTAL_CACHE"

FROM python:3.13-slim
# The state folder is created here, because a new volume gets the owner of the folder that it covers.
RUN useradd --create-home --uid 10001 portal \
 && install -d -o portal /home/portal/.local /home/portal/.local/state
COPY --from=build /opt/mcp-code-portal /opt/mcp-code-portal
COPY examples/container.yaml /etc/mcp-code-portal/portal.yaml
ENV PATH=/opt/mcp-code-portal/bin:$PATH \
    MCP_CODE_PORTAL_CACHE=/opt/mcp-code-portal/cache
USER 10001
WORKDIR /home/portal
EXPOSE 8080
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s \
  CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8080/healthz', timeout=3)"]
ENTRYPOINT ["mcp-code-portal"]
# --accept: the files are mounted by whoever starts the container.
CMD ["serve", "--accept", "--http", "0.0.0.0:8080", "--config", "/etc/mcp-code-portal/portal.yaml"]
