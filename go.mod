module github.com/conchsh/conch

go 1.26.0

require golang.org/x/sys v0.49.0
