// Go's HTTP server, which says what it took a request for: `heads PORT`, see heads.py.
package main

import (
	"encoding/hex"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
)

func word(value string) string {
	if value == "" {
		return "-"
	}
	return hex.EncodeToString([]byte(value))
}

func main() {
	log.SetOutput(io.Discard)
	answer := func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "saw %s %s %s\n", word(r.Method), word(r.RequestURI), word(r.UserAgent()))
	}
	panic(http.ListenAndServe("0.0.0.0:"+os.Args[1], http.HandlerFunc(answer)))
}
