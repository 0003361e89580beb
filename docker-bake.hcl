# docker buildx bake            an image of this machine's kind, loaded
# docker buildx bake release    for all of them, with provenance and a bill of materials

variable "IMAGE" { default = "aep-wrap" }
variable "VERSION" { default = "dev" }
variable "REVISION" { default = "unknown" }

group "default" { targets = ["local"] }

target "image" {
  context    = "."
  dockerfile = "Dockerfile"
  args       = { VERSION = VERSION, REVISION = REVISION }
  tags       = ["${IMAGE}:${VERSION}"]
}

target "local" {
  inherits = ["image"]
  output   = ["type=docker"]
}

target "release" {
  inherits  = ["image"]
  platforms = ["linux/amd64", "linux/arm64"]
  output    = ["type=registry"]
  attest    = ["type=provenance,mode=max", "type=sbom"]
}
