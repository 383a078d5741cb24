//go:build tools

package main

// The suite of HTTP/2's rules is built from this module, too, so that go.sum has its versions.
import _ "github.com/summerwind/h2spec/cmd/h2spec"
