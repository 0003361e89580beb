// Package check renders the chart beside it into the plain manifests, and holds
// both to the Kubernetes schemas, to what a schema cannot say, and to what the
// documentation promises of them. It is a module of its own, so that Helm and its
// dependencies stay out of the program's.
//
//	go test ./...           # are the rendered files what the chart gives?
//	go test ./... -update   # write them
//
// Of kubectl-validate only the embedded schemas are used, as data: its code does
// not build against the Kubernetes libraries of a current Helm, and would be 800
// packages more. What it adds to a schema, strictness, is done here.
package check
